"""Output files on disk and in S3.

`sinks` opens an output by its name; `growing` is a file that grows, `parts` are files that appear
when complete, `writers` loads the writer of a format, `parquet` writes row groups, `folder` opens
folders so that no name leads out of them.

Touches the world. Imported by master.driver, roles and commands. Start with `sinks`.
"""
