"""The engine `http`: plain GETs on a wire of our own.

`engine` chooses between this wire and `zcrawl.fetch.general`; `pool` has the connections,
`connector` looks up, asks the guard and connects, `connection` is one connection and one answer at
a time. `tls`, `response` and `cookie_jar` serve other engines too.

Touches the world. Imported by worker.pipeline, roles and the other engines. Start with `engine`.
"""
