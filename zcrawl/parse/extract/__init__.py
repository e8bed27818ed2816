"""Apply the job's `[extract]` rules, compiled once per run, to every page.

`plan` has the compiled rules, `fields` reads one field, `types` converts text to values,
`selectors` compiles CSS and JMESPath, `page_facts` is the page that extraction reads, `structured`
reads JSON-LD, OpenGraph and microdata, `item_schema` checks items.

Pure. Imported by parse, worker and commands. Start with `plan`; docs/extraction.md explains the
keys.
"""
