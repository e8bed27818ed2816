"""The log file of a process: one JSON object a line.

Touches the world. Imported by roles and commands. `files` is all of it.
"""
