"""Textual screens: one for each page, and the dialogs and forms over them.

`page` is what all pages share (top line, tabs, footer); `tables`, `overview`, `charts` and
`details` are the kinds of pages; `pages` maps each page to its screen. Imported by `app`. Start
with `page`.
"""
