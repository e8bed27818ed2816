"""The desk: what clients ask of the leader, and what they are told.

`operations` declares all that can be asked for, each once: arguments, right, what a repeat does,
handler. `desk` takes a request and calls its handler; `submissions`, `run_actions` and `actions`
change something, `reads` and `views` show something, `queues` sums up what waits. `rights` says
what each role may ask, `idempotency` keeps a request from being carried out twice; `arguments`,
`paging` and `replies` are their tools.

Pure; a part of the leader. Imported by master and by roles (`replies`). Start with `operations`.
"""
