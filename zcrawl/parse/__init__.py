"""Step 8: from bytes to facts.

`page` says what one page has: title, links, whether it wants to be kept. `charset` and `encodings`
decide how its bytes are read, `links` and `directives` what it links to and forbids, `cost` where
it is parsed (loop, thread or child), `sitemap` reads lists of pages, `fingerprint` finds near
copies. `extract` has the job's extraction rules; `reading` reads one answer as a run wants it.

Pure, except for `children`. Imported by worker, roles, commands and `zcrawl.spider`. Start with
`page`.
"""
