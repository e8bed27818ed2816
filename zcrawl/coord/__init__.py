"""Who leads, and who is there.

`election` is the machine: how a member registers, stands for election and learns that it leads no
more. `calls` is its vocabulary, `records` what is written into Consul, `members` what the catalogue
shows, `ports` what a master or worker needs of any coordinator.

Pure, except for `agents`. Imported by roles, commands and testing. Start with `ports`, then
`election`.
"""
