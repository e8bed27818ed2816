"""Stores of bodies: a folder or S3, named by the hash of their content.

`folder` and `s3` store them, `limited` adds a time limit and a circuit breaker to both.

Touches the world. Imported by outputs.files, roles and commands.
"""
