"""What people see of a crawl: views of jobs, history, log lines.

`views` is what a job looks like from outside, `history` what the last hours looked like. Nothing
decides by any of it.

Pure, except for `logs`. Imported by master, roles and commands. Start with `views`.
"""
