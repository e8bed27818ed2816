"""Data about a crawl for people: views of jobs, history, log lines.

`views` makes the views of jobs, `history` keeps the figures of the last hours. No decision of the
crawl uses them.

Pure, except for `logs`. Imported by master, roles and commands. Start with `views`.
"""
