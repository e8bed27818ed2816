"""Types that all parts share: states, reasons, the job spec, rows, the health of a host.

Types and constants, no behaviour but their own checks. `states` has the enums, `reasons` why a
URL was skipped or failed, `formats` the output formats, `spec` (with `extraction`) what a job
file says, `rows` the rows of the store as memory holds them, `host` and `vitals` reports about
hosts and processes, `snapshot` the cluster as consoles and displays see it, `capture`
recorded exchanges, `log_event` what is counted and logged, `sitemap_request` which requests are
sitemaps.

Everything may import it; it imports nothing of zcrawl but `zcrawl.errors`. Start with `states`.
"""
