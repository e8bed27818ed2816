"""Rules for text that others write: patterns of jobs, wildcards, text on its way to a terminal.

`expressions` is the only module that compiles what a job writes (RE2 and JMESPath, with limits);
`terminal` makes foreign text harmless before it is printed; `wildcards` matches names with `*`.

Pure. Everything but `zcrawl.model` may import it; it imports only `zcrawl.errors` and
`zcrawl.model`.
"""
