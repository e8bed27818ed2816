"""Rules for untrusted text: patterns of jobs, wildcards, text for a terminal.

`expressions` is the only module that compiles expressions of jobs (RE2 and JMESPath, with limits);
`terminal` makes untrusted text harmless before it is printed; `wildcards` matches names with `*`.

Pure. Everything but `zcrawl.model` may import it; it imports only `zcrawl.errors` and
`zcrawl.model`.
"""
