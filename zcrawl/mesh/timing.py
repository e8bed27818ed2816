"""The times that leader and workers must agree on.

A worker starts no request later than PERMISSION_S after it sent the newest heartbeat that a BEAT
echoed; the leader moves a host LOST_AFTER heartbeats after the last one it received. The second is
longer than the first, so two owners never start requests at the same time (rules `heartbeats` and
`permission`).
"""

from __future__ import annotations

HEARTBEAT_S = 1.0
WORKERS_PER_HEARTBEAT_S = 200  # above this many workers the interval grows
# But not further. A heartbeat waits up to one interval for the BEAT that echoes it, the next one
# comes an interval later, and one message of the round may be lost: three intervals and the way
# there and back must not outlast PERMISSION_S. A key may greet under any number of names.
HEARTBEAT_MOST_S = 2.0
SUSPECT_AFTER = 3  # intervals of silence
LOST_AFTER = 10
PERMISSION_S = 7.0

# How far ahead of its host's pace a URL may be given to a worker: longer than a failover takes, and
# shorter than the permission. What it fetches while nobody leads has to fit into its outbox.
LOOKAHEAD_S = 5.0
WINDOW_RESULTS = 500  # below the sockets' high-water mark of 1000
