"""Extraction: the job's `[extract]` rules, compiled once per run and applied to every page.

`plan` is the compiled rules, `fields` one field, `types` turns text into values, `selectors`
compiles CSS and JMESPath, `page_facts` is a page as extraction sees it, `structured` reads JSON-LD,
OpenGraph and microdata, `item_schema` checks items.

Pure. Imported by parse, worker and commands. Start with `plan`; docs/extraction.md explains the
keys.
"""
