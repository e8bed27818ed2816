"""The store on SQLite, MySQL and MariaDB.

`store` runs one command in one transaction. `apply` commits results, `submit` jobs and seeds,
`runs` what happens to a run, `load` a takeover, `intents` what operators asked for, `idempotency`
stored answers, `known` what a job remembers of pages, `read` the queries. `schema` has the tables,
`dialects` what differs between databases.

Touches the world; nothing else imports peewee, pymysql or sqlite3. Imported by roles and commands.
Start with `store`, then `apply`.
"""
