"""Steps 6 and 9: the worker as a pure machine.

`machine` takes messages and finished fetches and gives effects. `assignments` takes in what a
leader sends, `held_requests` starts it at each host's pace, `host_health` watches how hosts answer,
`shared_limits` keeps limits of domains and addresses, `outbox` keeps results until they are acked,
`report` says what a worker tells of itself. `results` decides what is reported of a page. `events`
is the vocabulary; `spider_protocol` has the messages to a spider's process.

Pure, except for `driver`, `pipeline` and `extensions`. A worker imports no store and no master.
Imported by roles and testing. Start with `events`, then `machine`.
"""
