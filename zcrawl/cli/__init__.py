"""The command line: from arguments to a call, from answers to lines.

`main` has the table of commands and says what becomes of an error; `commands` has their code.
`base` is what all commands share, `connect` whom they talk to, `specs` turns arguments into a job,
`output` prints, `display` shows a crawl while it runs.

Touches the world. Nothing imports it, except `zcrawl.__main__` and the console (`output`). Start
with `main`, then `commands.crawl`.
"""
