"""The form without a master: nodes that share resources by a list, and ask nobody.

`node_list` reads a list of nodes. `node_watch` decides which of them live, and what a new list
means. `living_nodes` makes a list of Consul's catalogue. `shares` tells the leader of an embedded
cluster which links are this node's. The hashing is in `zcrawl.ownership`. Pure:
`roles.standalone_node` reads files and wires the parts. Start with `shares`.
"""
