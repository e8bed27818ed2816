"""Step 3: which requests wait, in which order, and how fast a host may be fetched.

`frontier` keeps a window on the queued rows of each (run, host) lane. `url` decides whether two
spellings are the same URL; `scope` and `traps` decide which links belong to a crawl; `seen` answers
most seen-checks from memory. `pace`, `throttle` and `breaker` decide when a host may get a request,
`retry` when a failed request is tried again, `recrawl` when a known page is due.

Pure. Imported by submit, store, dispatch, result, master, fetch, parse and worker. Start with
`frontier`, then `url`.
"""
