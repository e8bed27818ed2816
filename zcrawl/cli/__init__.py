"""The command line: from arguments to a call, from answers to lines.

`main` has the table of commands and turns errors into exit codes; `commands` has their code.
`base` has the options that all commands share, `connect` finds the cluster or database to talk to,
`specs` turns arguments into a job, `output` prints, `display` shows a crawl while it runs.

Does I/O. Nothing imports it, except `zcrawl.__main__` and the console (`output`). Start
with `main`, then `commands.crawl`.
"""
