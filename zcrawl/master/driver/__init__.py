"""Drives a Master with real parts: sockets, clock, the store's threads, output files.

`loop` feeds events to the machine and does its effects. `store_threads` runs commands on one thread
in order and queries on another. `outputs` and `output_writer` let files follow the committed items.
`retention` removes old runs, `archive` writes them to a folder or to S3 before.

Touches the world. Imported by roles. Start with `loop`.
"""
