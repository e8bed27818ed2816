"""A store in memory, with the same contract as the real one (tests/contract).

`store` is the port, `tables` the rows in dicts; the other modules are the twins of those in
`zcrawl.store.sql`.

Pure. Imported by zcrawl.testing and tests.
"""
