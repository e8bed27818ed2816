"""The coordinators: Consul for a cluster, a locked file for a data folder.

`consul` drives the election machine with threads that call (`consul_client`) and watch;
`local_lock` is leadership by a file lock.

Touches the world; nothing else imports the library `consul`. Imported by roles.
"""
