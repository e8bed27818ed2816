"""The master: the machines that decide for the whole crawl.

`master` is a follower or a leader, as the lock and the database say. `leader` holds one epoch's
parts: `membership` (workers come and go), `commits` (results to transactions), `recall` (pages of
earlier runs), `overdue`, `stored_lease`, `pruning`, `snapshot` and `watch` (for consoles), on the
state in `leader_state`. `follower` forwards. `crash_guard` keeps a bug in one event from ending the
master. `events` is the vocabulary: events in, effects out.

Pure, except for `driver`; `desk` answers clients. Imported by roles and testing. Start with
`events`, then `leader`.
"""
