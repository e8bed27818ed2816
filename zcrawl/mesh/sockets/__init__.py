"""The mesh on ZeroMQ.

`end` is what all ends share; `master`, `worker`, `client` and `peers` are the ends. `readers` reads
sockets in the event loop, `border` holds them to `zcrawl.mesh.border`, `handshake` reports failed
handshakes, `keys` reads and writes key files.

Touches the world; nothing else imports `zmq`. Imported by roles, commands and the console. Start
with `end`.
"""
