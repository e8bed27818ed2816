"""From what a fetch came to, to the Result that is reported.

`outcome` makes results of pages, failures and skips; `readings` those of pages that were read, with
their items and the links that `link_filter` lets through; `sitemaps` those of sitemaps;
`spider_requests` judges what a spider asks for.

Pure. Imported by worker.pipeline, worker.extensions, roles and testing. Start with `outcome`.
"""
