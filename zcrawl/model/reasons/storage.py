"""Why the database, the bodies or an output cannot be read or written."""

from __future__ import annotations

from typing import Final

from zcrawl.model.reasons.reason import refusal

# ---------------------------------------------------------------- the database

STORE: Final = refusal(
    "store", "The database failed without a more exact code.", "Read the message and the log."
)
STORE_UNAVAILABLE: Final = refusal(
    "store_unavailable",
    "The database does not answer. Nothing was lost, and zcrawl tries again.",
    "Check the database server and its network, or the disk of the data folder.",
)
DISK_FULL: Final = refusal(
    "disk_full",
    "The disk is full. zcrawl waits and tries again.",
    "Free some space on the disk of the data folder or the output.",
)
COMMIT_UNKNOWN: Final = refusal(
    "commit_unknown",
    "The connection broke during a commit, so the leader reads the database again.",
    "Nothing. If it happens often, check the network to the database.",
)
STORE_CORRUPT: Final = refusal(
    "store_corrupt",
    "The database file is damaged.",
    "Restore a backup, or move the file away to start with an empty database.",
)
STORE_LOST: Final = refusal(
    "store_lost",
    "The database was removed, emptied or replaced by an older copy.",
    "Restore it together with its -wal file, or follow the message to continue without it.",
)
STORE_BEHIND: Final = refusal(
    "store_behind",
    "The database lacks commits that it had confirmed, as after a failover to an older copy.",
    "Check the replication of the database. Workers restart by themselves.",
)
STORE_DATA: Final = refusal(
    "store_data",
    "Some data can never be stored. It is dropped, and the rest is stored.",
    "The log names it. Please report it.",
)
STORE_READONLY: Final = refusal(
    "store_readonly",
    "The database server does not accept writes; it may be a replica.",
    "Put the primary into database.urls, or make the server writable.",
)
STORE_UNWRITABLE: Final = refusal(
    "store_unwritable",
    "The database file cannot be written.",
    "Choose another folder with --data, or correct its permissions.",
)
STORE_DENIED: Final = refusal(
    "store_denied",
    "The database server refuses the user.",
    "Check user, password and grants of database.urls: docs/mysql.md.",
)
STORE_TLS: Final = refusal(
    "store_tls",
    "The TLS connection to the database failed.",
    "Check ssl_mode, ssl_ca, ssl_cert and ssl_key in database.urls: docs/mysql.md.",
)
NO_DATABASE: Final = refusal(
    "no_database",
    "There is no database here.",
    "Check --data or database.urls. `zcrawl crawl` and `master --create-database` make one.",
)
SCHEMA_NEWER: Final = refusal(
    "schema_newer",
    "A newer zcrawl has written this database.",
    "Upgrade this zcrawl.",
)
TOO_MANY_CONNECTIONS: Final = refusal(
    "too_many_connections",
    "The database server has no connection left.",
    "Raise max_connections of the server.",
)
DUPLICATE_KEY: Final = refusal(
    "duplicate_key",
    "A row existed already: another leader wrote, or a commit was repeated. The leader reloads.",
    "Nothing. If it happens often, check that only one cluster uses the database.",
)
FENCED: Final = refusal(
    "fenced",
    "A newer leader exists, so this one may not write any more.",
    "Nothing: this master steps down.",
)
NO_PAGE: Final = refusal(
    "no_page",
    "A result says that a request is done, but it has no page.",
    "Please report it. Check that master and workers have the same version.",
)
RESULT_GAP: Final = refusal(
    "result_gap",
    "A worker's result does not follow the last one that was stored.",
    "Please report it, with the logs of master and worker.",
)
BAD_ITEM: Final = refusal(
    "bad_item",
    "A stored item or capture cannot be read, or does not fit a column of the output.",
    "Use another format, such as JSON lines, or correct the job's schema.",
)

ARCHIVE_INCOMPLETE: Final = refusal(
    "archive_incomplete",
    "An archive of a run does not have as many rows as the run has counted, so the run was kept.",
    "Nothing: it is tried again. If it stays, please report it.",
)

# ---------------------------------------------------------------- bodies

BLOBS_UNAVAILABLE: Final = refusal(
    "blobs_unavailable",
    "The storage of bodies does not answer. It is tried again.",
    "Check bodies.url, or the disk of the data folder.",
)
S3_UNAVAILABLE: Final = refusal(
    "s3_unavailable",
    "S3 does not answer, or refuses the request.",
    "Check bucket, credentials (AWS_ACCESS_KEY_ID …) and network.",
)
BAD_S3_URL: Final = refusal(
    "bad_s3_url", "The S3 address is not valid.", "Write s3://bucket/prefix."
)
NO_BLOB: Final = refusal(
    "no_blob",
    "A stored body no longer exists.",
    "Check that bodies.url is still the same place. The archive is written without it.",
)
BAD_BLOB_NAME: Final = refusal(
    "bad_blob_name",
    "The stored name of a body is not one that zcrawl makes.",
    "Check that nobody has changed the database.",
)
BODIES_NOT_SHARED: Final = refusal(
    "bodies_not_shared",
    "There is no storage for bodies that all machines of the cluster can reach.",
    "Set bodies.url = 's3://…', or a shared folder and bodies.shared = true.",
)

# ---------------------------------------------------------------- outputs

OUTPUT_UNWRITABLE: Final = refusal(
    "output_unwritable",
    "An output file or its folder cannot be written.",
    "Check the path and its permissions on the leader.",
)
OUTPUT_FORMAT: Final = refusal(
    "output_format",
    "The format of an output is unknown.",
    "Use one that `zcrawl export --help` lists.",
)
OUTPUT_CHANGED: Final = refusal(
    "output_changed",
    "Somebody changed an output file that zcrawl had written, so it was left as it is.",
    "The message names the file with the items, or `zcrawl export` writes a new one.",
)
OUTPUT_DAMAGED: Final = refusal(
    "output_damaged",
    "An output file is shorter than what was written to it.",
    "Export the run's items to a new file with `zcrawl export`.",
)
OUTPUT_CLOSED: Final = refusal(
    "output_closed",
    "An output was used after it was closed.",
    "Please report it. `zcrawl export` writes the items.",
)
OUTPUT_ROWS_GONE: Final = refusal(
    "output_rows_gone",
    "Rows that an output must write again are not in the database any more.",
    "The job was deleted meanwhile, or the database is an older copy. Restore it or export again.",
)
OUTPUT_TIMEOUT: Final = refusal(
    "output_timeout",
    "Writing an output took too long. It is tried again.",
    "Check the disk, the network folder or S3.",
)
OUTPUT_PLUGIN: Final = refusal(
    "output_plugin",
    "A store plugin failed to write. It is tried again.",
    "The message has its error. Check its options below [plugins].",
)
OUTPUTS_NOT_SHARED: Final = refusal(
    "outputs_not_shared",
    "outputs.shared is set, but the folder is not the one that another master wrote to.",
    "Mount the shared folder on this master, or set outputs.shared = false.",
)
