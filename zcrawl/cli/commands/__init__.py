"""The commands, one file each, or one for a few that belong together.

Each is loaded when it is called: `zcrawl.cli.main` has the table, with the line that `--help`
shows.

Does I/O. Imported by `zcrawl.cli.main`, by name, and by each other.
"""
