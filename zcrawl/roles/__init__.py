"""Wiring only: connect the parts of a master, a worker, an embedded cluster, a client.

`embedded` is a whole cluster in one folder, `master_node` and `worker_node` are the nodes of a
cluster, `worker_main` is one worker process, `client` talks to masters, `probe` fetches once
without a cluster. `preflight` checks before a crawl whether this machine has all it needs.

Does I/O. Imported by commands and the console. Start with `embedded`.
"""
