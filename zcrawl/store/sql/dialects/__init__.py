"""What differs between databases.

`dialect` has the two ports, `sqlite` and `mysql` fill them. `mysql_session`, `mysql_errors` and
`mysql_literals` are parts of `mysql`.

Touches the world. Imported by store.sql, and by roles and commands that look at a database's files.
"""
