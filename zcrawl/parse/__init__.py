"""Step 8: read the content of fetched pages.

`page` reads one page: title, links, and whether it may be kept. `charset` and `encodings` decide
its encoding, `links` and `directives` read its links and its rules for robots, `cost` decides where
it is parsed (loop, thread or child process), `sitemap` reads sitemaps, `fingerprint` finds near
duplicates. `extract` has the job's extraction rules; `reading` reads one answer with the settings
of a run.

Pure, except for `children`. Imported by worker, roles, commands and `zcrawl.spider`. Start with
`page`.
"""
