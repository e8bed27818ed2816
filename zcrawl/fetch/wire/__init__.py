"""The engine `http`: plain GETs with our own HTTP client.

`engine` chooses between this client and `zcrawl.fetch.general`; `pool` keeps the connections,
`connector` looks names up, checks addresses with the guard and connects, `connection` is one
connection with one answer at a time. Other engines use `tls`, `response` and `cookie_jar` too.

Touches the world. Imported by worker.pipeline, roles and the other engines. Start with `engine`.
"""
