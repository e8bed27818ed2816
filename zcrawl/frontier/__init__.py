"""Step 3: what waits, in which order, and how fast a host may be asked.

`frontier` keeps a window on the queued rows of each (run, host) lane. `url` decides when two
spellings are one URL; `scope` and `traps` which links belong to a crawl; `seen` answers most
seen-checks from memory. `pace`, `throttle` and `breaker` say when a host may be asked, `retry` when
a failed request is tried again, `recrawl` when a known page is due.

Pure. Imported by submit, store, dispatch, result, master, fetch, parse and worker. Start with
`frontier`, then `url`.
"""
