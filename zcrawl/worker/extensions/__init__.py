"""Foreign code of a run: its spider, middlewares, parsers, executor.

`extensions` is what one run has of them, `by_run` keeps them for all runs. `spiders` runs a spider
in a child process (`spider_child`), `threads` runs plain plugin code aside, `executors` jobs that
are not crawls.

Touches the world. Imported by worker.pipeline and roles. Start with `extensions`.
"""
