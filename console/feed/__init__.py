"""Where a console gets its events from, and how it records them. Touches the world.

`ports` is what the app needs. `mesh` is a line to a cluster; `recorder` writes a recording and
`replay` plays it back (`playhead` decides which moment is shown).

Imported by `app` and `main`. Start with `ports`.
"""
