"""Where bodies are kept: a folder or S3, named by the hash of their content.

`folder` and `s3` keep them, `limited` puts a time limit and a breaker around both.

Touches the world. Imported by outputs.files, roles and commands.
"""
