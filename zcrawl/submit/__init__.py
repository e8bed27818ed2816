"""Step 1: check that a job is valid and that this user may submit it.

`read` turns a job file into a spec (`zcrawl.model.spec`), `validate` checks it; `access`, `code`,
`extraction`, `outputs`, `tags` and `seeds` check one part each. `private`, `output_rights` and
`code` check things that only an operator may allow. `stored` checks specs that an older version has
stored.

Pure. Imported by the leader's desk, by commands, and by readers of a job's settings. Start with
`validate`.
"""
