"""The book shop that `make run` crawls.

`catalogue` makes it from a seed, `pages` is its HTML, `words` its data, `server` serves it on
loopback.

Touches the world. Imported by the command `demo` and by tests.
"""
