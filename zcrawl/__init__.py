"""zcrawl: a distributed web crawler operated from a terminal.

The way of one URL, and the package that does each step:

 1. submit     a job spec is validated and stored; the reply goes out after the commit
 2. master     the job becomes a run; its seeds enter the frontier
 3. frontier   canonical form, key, scope, seen-check; the URL waits in the lane of its host
 4. dispatch   hosts with due work are granted to workers with credit, by rendezvous hashing
 5. mesh       the assignment is sent to the worker
 6. worker     epoch, capacity and duplicates are checked; the URL waits for its host's pace
 7. fetch      robots.txt, redirects hop by hop, limits, the address guard; a failure gets its name
 8. parse      title, links and items; links are filtered by scope and depth (worker.results)
 9. worker     the result is numbered, kept in the outbox and published
10. result     page, items, new links, counters and watermark become one transaction of the store;
               then the ack is sent, and the outbox removes the result

Around them: `model` has the types that all share, `text` the rules for text that people write,
`coord` elects the leader, `store` has the database, `outputs` and `blobs` write files, `telemetry`
prepares what users see of a run. `schedule` says when jobs start by themselves, `standalone` which
share a node without a master has. `gateway` serves HTTP, `client` is for programs that use it.
`roles` connects them to processes (`runtime`), `cli` has the commands, `testing` the simulated
cluster, `demo` a site to crawl.

Whether a module does I/O is a property of its folder: tests/architecture/rules.py has the list.
Start reading with docs/architecture.md.
"""

__version__ = "0.1.0"
