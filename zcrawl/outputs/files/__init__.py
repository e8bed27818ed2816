"""Output files on disk and in S3.

`sinks` opens an output by its name; `growing` appends to a file, `parts` writes files that appear
when they are complete, `writers` loads the writer of a format, `parquet` writes row groups,
`folder` opens folders so that no name can lead out of them, `exports` reads the rows of one run.

Touches the world. Imported by master.driver, roles and commands. Start with `sinks`.
"""
