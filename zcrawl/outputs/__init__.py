"""Output files: the format of items, and the order in which they are written.

`records` has the writers of JSON lines, CSV and WARC (`model.formats` lists all formats), which use
`render` and `warc`; `columns` finds the columns of a job's items, `script` is the order of effects
that survives a change of leaders, `plugin` an output that a plugin stores.

Pure, except for `files`. Imported by master.driver, roles, commands and testing. Start with
`script`; docs/outputs.md has the promises.
"""
