"""From what a fetch came to, to the Result that is reported.

`attempt` says what becomes of a page, and is the only place of a worker that makes a Result. What
goes into it: `context` has the rules of its run, `pages` the facts of an answer, `items` the items,
`link_filter` the links that belong to the crawl, `sitemaps` what a sitemap names;
`spider_requests` judges what a spider asks for.

Pure. Imported by the worker machine, worker.pipeline, worker.extensions, roles and testing. Start
with `attempt`.
"""
