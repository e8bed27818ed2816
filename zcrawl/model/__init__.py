"""The nouns that every part shares: states, reasons, the job spec, rows, a host's manner.

Types and constants, no behaviour but their own checks. `states` has the enums, `reasons` why a
URL was skipped or failed, `formats` the output formats, `spec` (with `extraction`) what a job
file says, `rows` the rows of the store as memory holds them, `host` and `vitals` what messages
say of hosts and processes, `snapshot` the cluster as consoles and displays see it, `capture`
recorded exchanges, `note` what a machine wants counted and logged, `request_headers` the request
headers that only zcrawl sets, `log_event` what is logged, `sitemap_request` which requests are
sitemaps.

Everything may import it; it imports nothing of zcrawl but `zcrawl.errors`. Start with `states`.
"""
