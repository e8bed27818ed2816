"""The differences between databases.

`dialect` has the two ports, `sqlite` and `mysql` fill them. `mysql_session`, `mysql_errors` and
`mysql_literals` are parts of `mysql`.

Does I/O. Imported by store.sql, and by roles and commands that look at a database's files.
"""
