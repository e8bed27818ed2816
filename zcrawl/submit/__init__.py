"""Step 1: is this job valid, and may this user submit it?

`read` turns a job file into a spec (`zcrawl.model.spec`), `validate` says what is wrong with it;
`access`, `code`, `extraction`, `outputs`, `tags` and `seeds` judge one part each. `private`,
`output_rights` and `code` decide what only an operator may allow. `stored` judges specs that an
older version has stored.

Pure. Imported by the leader's desk, by commands, and by all that read a job's settings. Start with
`validate`.
"""
