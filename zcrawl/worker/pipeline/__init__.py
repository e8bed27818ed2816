"""Steps 7 and 8: from an assignment to the end of its attempt, one task per running fetch.

`pipeline` is the way of one attempt. On it: `robots`, `session` (identities, credentials, cookies,
`login`), `outgoing` (requests that are more than a GET), `engines`, `reading` (a body to links and
items), `special` (sitemaps, soft 404s), `traits` (what a page is recognised by), `capture` (for
archives). `fetching` is the state of one running fetch; its attempt is in `worker.results`.

Touches the world. Imported by worker.driver and roles. Start with `pipeline`.
"""
