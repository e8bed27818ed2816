"""Step 7: what may be asked, of whom, and what an answer means.

`ports` is what the pipeline needs of an engine. `policy` says what statuses and failures mean,
`guard` which addresses may be connected to, `robots` what robots.txt allows, `body` how a body is
decoded and limited, `identity`, `keyring`, `proxies` and `cookies` as whom a host is asked,
`browser_plan` and `browser_contexts` what the browser may do.

Pure, except for the engines: `wire` (plain GETs), `general` (bodies and proxies), `http2`,
`browser`. Imported by worker, roles and `zcrawl.config`. Start with `ports`, then `policy`.
"""
