"""The log file of a process: one JSON object a line.

Does I/O. Imported by roles and commands. `files` has all of it.
"""
