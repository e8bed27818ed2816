"""Election of the leader, and the catalogue of members.

`election` is the machine: how a member registers, tries to become leader, and learns that it lost
leadership. `calls` has its events and effects, `records` the data in Consul, `members` the contents
of the catalogue, and `ports` the interface of a coordinator.

Pure, except for `agents`. Imported by roles, commands and testing. Start with `ports`, then
`election`.
"""
