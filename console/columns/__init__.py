"""The tables of the console: which columns each page has, and what a cell says. Pure.

`pages` maps each page to its table. `work` has nodes and jobs, `queues` queues and hosts,
`outcomes` errors, items and the log; `cells` turns values into text.

Imported by `view`, the screens and `plain_page`. Start with `pages`.
"""
