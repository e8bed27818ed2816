"""Step 4: decide which worker fetches which request, now.

`planner` makes the plan: `due_hosts` has the hosts to look at, `batches` what is sent. `gates`
answers whether a host may get a request now. Both read `host_owners` (which worker has a host),
`host_state` (how much of the host each worker may use), `shared_limits` (limits of domains and
addresses), `leases` (requests that workers hold), `roster` (which workers are alive) and `runs`
(settings of the jobs). `early_ends` and `crash_suspects` take requests out of the plan.
`task_planner` gives out tasks without a host, and `label_limits` counts those that need a label.
`candidates` chooses the workers that may own a host, `balancer` moves hosts between workers. `why`
explains to people why a host waits.

Pure; a part of the leader. Imported by master and result. Start with `planner`.
"""
