"""The simulated world: a whole cluster in one process, under one seed.

`world` has the clock and the network, `faults` and `chaos` the faults, `web` the crawled sites,
`lock_service` and `coordinator` the election, `clients` and `operators` the users, `outputs` the
output files. `verify` checks what must be true in the end. `store` is the store in memory.
`plugin_contract` is for authors of plugins: tests that every plugin must pass.

Pure: chance comes from the seed. Imported by tests only. Start with `world`.
"""
