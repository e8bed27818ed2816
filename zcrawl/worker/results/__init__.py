"""Turn the outcome of a fetch into the Result that is reported.

`attempt` decides how a page ends, and is the only place of a worker that makes a Result. It uses:
`context` has the rules of its run, `pages` the facts of an answer, `items` the items,
`link_filter` the links that belong to the crawl, `sitemaps` the entries of sitemaps;
`spider_requests` checks the requests of a spider.

Pure. Imported by the worker machine, worker.pipeline, worker.extensions, roles and testing. Start
with `attempt`.
"""
