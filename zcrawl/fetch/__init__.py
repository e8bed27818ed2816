"""Step 7: which requests may be sent, where, and what their answers mean.

`ports` is the interface of an engine. `policy` says what statuses and failures mean, `guard` which
addresses may be connected to, `robots` what robots.txt allows, and `body` decodes and limits
bodies. `identity`, `keyring`, `proxies` and `cookies` choose headers, secrets, proxy and cookies of
a request. `browser_plan` and `browser_contexts` decide what the browser may do.

Pure, except for the engines: `wire` (plain GETs), `general` (bodies and proxies), `http2`,
`browser`. Imported by worker, roles and `zcrawl.config`. Start with `ports`, then `policy`.
"""
