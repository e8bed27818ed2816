"""zcrawl: a distributed web crawler operated from a terminal.

The way of one URL, and the package that does each step:

 1. submit    a job spec is validated and stored; the reply goes out after the commit
 2. master    the job becomes a run; seeds enter the frontier
 3. frontier  canonical form, key, seen-check, host lane
 4. dispatch  hosts with due work are granted to workers with credit, by rendezvous hashing
 5. mesh      the assignment travels
 6. worker    intake: epoch, capacity and duplicates are checked; the host's pace is kept
 7. fetch     robots, redirects hop by hop, limits, retry class
 8. parse     the item and the links, canonical, filtered by scope and depth
 9. worker    outbox: the result is numbered, kept and published
10. result    the leader commits page, items, new links, counters and watermark in one
              transaction, then acks; the outbox forgets

A module is pure unless its name says what it touches (`_zmq`, `_peewee`, `_loop`, ...).
"""

__version__ = "0.1.0"
