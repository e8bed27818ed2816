"""The types of the store: commands, queries, and the rules that every backend shares.

`ports` is what the leader needs, `commands` what can be written (one fenced transaction each),
`queries` what can be read. `rules`, `redirects` and `near` are decisions within a transaction,
`output_pieces` and `output_mark` describe the progress of an output file.

Pure, except for `sql`. Imported by result, master, outputs, blobs, telemetry, roles, commands and
testing; never by workers. Start with `commands`.
"""
