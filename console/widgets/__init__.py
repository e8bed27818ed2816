"""Textual widgets of our own: the table, the charts, the heat map, panels, the footer.

They own focus, cursor, scroll and what is typed; the View owns all data. `painted` turns lines of
`drawing/` into strips of the theme's colours. Imported by `screens`. Start with `painted`.
"""
