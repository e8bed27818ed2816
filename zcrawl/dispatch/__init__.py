"""Step 4: which worker fetches what, now.

`planner` makes the plan. It asks `host_owners` which worker has a host, `host_state` how much of
the host each may use, `shared_limits` for limits of domains and addresses, `leases` what is out,
`roster` who is alive and `runs` what the job wants. `early_ends` and `crash_suspects` take requests
out of the plan. `why` explains, for people, why a host waits.

Pure; a part of the leader. Imported by master and result. Start with `planner`.
"""
