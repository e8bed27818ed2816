"""The store on SQLite, MySQL and MariaDB.

`store` runs one command in one transaction. `apply` commits results, `submit` jobs and seeds,
`runs` changes of runs, `load` takeovers, `intents` requests of operators, `idempotency` stored
answers, `known` the pages that a job remembers; `read` runs the queries. `schema` has the tables,
`dialects` the differences between databases.

Does I/O; nothing else imports peewee, pymysql or sqlite3. Imported by roles and commands.
Start with `store`, then `apply`.
"""
