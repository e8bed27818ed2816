"""Child processes that parse pages which could block a worker.

`pages` gives costly pages to children (`page_child`) and kills those that take too long; `content`
and `content_child` find the main content of a page.

Touches the world. Imported by worker.pipeline. Start with `pages`.
"""
