"""The simulated world: a whole cluster in one process, under one seed.

`world` has the clock and the network; `faults` and `chaos` what goes wrong, `web` what is crawled,
`lock_service` and `coordinator` who leads, `clients` and `operators` who asks, `outputs` what is
written. `verify` says what must be true in the end. `store` is the store in memory.
`plugin_contract` is for authors of plugins: tests that every plugin must pass.

Pure: chance comes from the seed. Imported by tests only. Start with `world`.
"""
