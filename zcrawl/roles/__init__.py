"""Wiring only: which parts make a master, a worker, an embedded cluster, a client.

`embedded` is a whole cluster in one folder, `master_node` and `worker_node` are the nodes of a
cluster, `worker_main` is one worker process, `client` talks to masters, `probe` fetches once
without a cluster. `preflight` finds out before a crawl what a machine lacks.

Touches the world. Imported by commands and the console. Start with `embedded`.
"""
