"""Why a command line, a configuration or a job is refused."""

from __future__ import annotations

from typing import Final

from zcrawl.model.reasons.reason import ParameterForm, ReasonKind, refusal

ERROR: Final = refusal(
    "error",
    "An error without a more exact code.",
    "Read the message. Please report it: each error should have a code.",
)
INTERNAL: Final = refusal(
    "internal",
    "A bug in zcrawl: the command failed with an unexpected error.",
    "Run it again with ZCRAWL_DEBUG=1 and report the traceback.",
)
INTERRUPTED: Final = refusal(
    "interrupted", "The command was interrupted, by Ctrl-C for example.", "Run it again."
)

# ---------------------------------------------------------------- command line and configuration

USAGE: Final = refusal(
    "usage",
    "The command line is wrong.",
    "`zcrawl COMMAND --help` lists arguments and flags.",
)
CONFIG: Final = refusal(
    "config",
    "A value of the configuration (file, flag or environment) is wrong.",
    "The message names the key. `zcrawl config show` lists where each value comes from.",
)
UNKNOWN_KEY: Final = refusal(
    "unknown_key",
    "A file has a key that does not exist.",
    "Correct its spelling. `zcrawl config schema` lists all keys.",
)
BAD_TOML: Final = refusal(
    "bad_toml", "A file is not valid TOML.", "Correct the line that the message names."
)
UNREADABLE: Final = refusal(
    "unreadable",
    "A file cannot be read, or is not UTF-8 text.",
    "Check the path, its permissions and its encoding.",
)
EXISTS: Final = refusal(
    "exists", "The file to write exists already.", "--force replaces it, or use another name."
)
DATA_UNWRITABLE: Final = refusal(
    "data_unwritable",
    "The data folder cannot be created or written.",
    "Choose another folder with --data, or correct its permissions.",
)
DATA_NOT_PRIVATE: Final = refusal(
    "data_not_private",
    "The folder for sockets belongs to another user.",
    "Remove it, or choose another folder with --data.",
)
OUT_UNWRITABLE: Final = refusal(
    "out_unwritable",
    "The file of --out cannot be written.",
    "Check path and permissions, or choose another file.",
)
OUT_FAILED: Final = refusal(
    "out_failed",
    "Writing the file of --out failed.",
    "Check the disk. The data is still in the database: `zcrawl export` writes it again.",
)
STDOUT_FAILED: Final = refusal(
    "stdout_failed",
    "Standard output cannot be written, for example on a full disk.",
    "Free some space, or send the output elsewhere.",
)
NO_CAPTURES: Final = refusal(
    "no_captures",
    "The run has no captured pages, so there is nothing for an archive.",
    "Set output.capture = true in the job and run it again.",
)
NO_CONSOLE: Final = refusal(
    "no_console",
    "The console needs a package that is not installed.",
    "Run the `pip install` command in the message.",
)
NO_SUCH_CLUSTER: Final = refusal(
    "no_such_cluster",
    "The configuration has no cluster of this name.",
    "Use one of console.clusters, or add it there.",
)

# ---------------------------------------------------------------- the job

JOB: Final = refusal(
    "job",
    "A value of the job is wrong.",
    "The message names the key. docs/job-file.md explains every key.",
)
JOB_TOO_LARGE: Final = refusal(
    "job_too_large",
    "A job has more entries or more text than a leader checks without a pause.",
    "The message names the limit and the key. More seeds come from a file: --seeds FILE.",
)
BAD_SPEC: Final = refusal(
    "bad_spec",
    "A stored job cannot be read or run by this version.",
    "Submit the job file again with `zcrawl submit --update`; use the same version everywhere.",
    form=ParameterForm.DETAIL,
    also=(ReasonKind.SKIP, ReasonKind.FAILURE),
)
BAD_EXPRESSION: Final = refusal(
    "bad_expression",
    "A regular expression is wrong, too large, or uses a feature that RE2 does not have.",
    "Correct it at the position in the message; docs/job-file.md has a table of differences.",
    form=ParameterForm.DETAIL,
    also=(ReasonKind.SKIP,),
)
BAD_SCHEDULE: Final = refusal(
    "bad_schedule",
    "A value of [schedule] is wrong: a time, a zone, a cron line that never fires.",
    "The message names the key and says what to write. docs/scheduling.md explains schedules.",
)
BAD_DEPENDENCY: Final = refusal(
    "bad_dependency",
    "A job names a parent that does not exist, or jobs follow each other in a circle.",
    "The message names the jobs. Submit the parent first, or remove one name of the circle.",
)
BAD_PARAMS: Final = refusal(
    "bad_params",
    "A job uses a parameter that it does not declare, or declares one that it does not use.",
    "Declare it in [params] with a default value, or remove it; --set names only declared ones.",
)
BAD_RESOURCES: Final = refusal(
    "bad_resources",
    "The list `resources` of a job is not valid, or its seeds do not fit to it.",
    "Write each id once, and ${resource} in each seed of the job. The message says what is wrong.",
)
BAD_SELECTOR: Final = refusal(
    "bad_selector",
    "A CSS selector is not valid.",
    "Correct it; `zcrawl test JOB.toml URL` shows what it finds.",
)
BAD_PATH: Final = refusal(
    "bad_path",
    "A JMESPath expression is not valid, or uses a function that is not allowed.",
    "Correct it; docs/extraction.md lists what is allowed.",
)
BAD_CHOICE: Final = refusal(
    "bad_choice",
    "The value of a key is not one of the allowed values.",
    "Use one of the values in the message.",
)
PASSWORD_IN_URL: Final = refusal(
    "password_in_url",
    "A URL holds a user name or password, which would be stored and shown.",
    "Use [[fetch.auth]] with the password as ${NAME}.",
)
SECRET_WRITTEN_OUT: Final = refusal(
    "secret_written_out",
    "A password is written out in the job, where everybody could read it.",
    "Write ${NAME}, and put the value into ZCRAWL_SECRET_NAME on the workers.",
)
NO_SECRET: Final = refusal(
    "no_secret",
    "The job uses a secret that has no value here.",
    "Set the variable in the message (ZCRAWL_SECRET_NAME) where the workers run.",
)
BAD_REFERENCE: Final = refusal(
    "bad_reference",
    "A reference in the configuration cannot be opened: a variable, a file or a sealed text.",
    "The message names the key and the reference. Set the variable, or correct the file's name.",
)
OPEN_SECRET_FILE: Final = refusal(
    "open_secret_file",
    "A file with a secret can be read or changed by other users.",
    "chmod 600 the file, and replace the secret if others may have read it.",
)
BAD_SEALED: Final = refusal(
    "bad_sealed",
    "A sealed secret cannot be opened: it was sealed with another key, or it was changed.",
    "Seal or set it again. After a change of the key, keep the old one until `zcrawl secret "
    "rotate` is done.",
)
BAD_VAULT_KEY: Final = refusal(
    "bad_vault_key",
    "The masters' key for stored secrets is missing or wrong.",
    "Make a file with `zcrawl secret key FILE`, and name it in vault.key_file on every master.",
)
NO_CRYPTOGRAPHY: Final = refusal(
    "no_cryptography",
    "The library that seals and opens secrets is not installed.",
    "pip install 'zcrawl[secrets]'",
)
NO_SUCH_SECRET: Final = refusal(
    "no_such_secret",
    "No secret of this name is stored.",
    "`zcrawl secret list` shows the names; `zcrawl secret set NAME` stores one.",
    form=ParameterForm.DETAIL,
    also=(ReasonKind.WAITING,),
)
SECRET_SEALED: Final = refusal(
    "secret_sealed",
    "The leader cannot open a stored secret that the job names.",
    "Give every master the key with which it was sealed, or set the secret again.",
    form=ParameterForm.DETAIL,
    also=(ReasonKind.WAITING,),
)
SECRET_NEEDS_KEYS: Final = refusal(
    "secret_needs_keys",
    "Stored secrets are sent over encrypted connections only, and this cluster has no keys.",
    "Give the cluster keys (`zcrawl keys`), or use ${NAME} with ZCRAWL_SECRET_NAME on the workers.",
    form=ParameterForm.DETAIL,
    also=(ReasonKind.WAITING,),
)
BAD_SECRET: Final = refusal(
    "bad_secret",
    "A proxy's user or password has a character that ends that part of a URL.",
    "Write the character as %XX in the value of ZCRAWL_SECRET_NAME.",
)
PATH_NOT_ALLOWED: Final = refusal(
    "path_not_allowed",
    "The job names a file or place that the cluster does not allow for jobs.",
    "Use a relative path, or let an operator add the place to outputs.allow or worker.tls_files.",
)
PRIVATE_NOT_ALLOWED: Final = refusal(
    "private_not_allowed",
    "The job wants private addresses, but the masters do not allow them for jobs.",
    "Remove fetch.allow_private, or set cluster.allow_private = true on the masters.",
)
CODE_NOT_ALLOWED: Final = refusal(
    "code_not_allowed",
    "The job contains a spider's file, but the masters do not accept code in jobs.",
    "Set cluster.allow_code = true on the masters, or install the spider as a package.",
    form=ParameterForm.DETAIL,
    also=(ReasonKind.WAITING,),
)

COMMAND_TOO_LONG: Final = refusal(
    "command_too_long",
    "The command line of a shell job, with its environment, is too long.",
    "Put long values into a file on the workers, and name the file.",
)
SECRET_IN_ARGS: Final = refusal(
    "secret_in_args",
    "A shell job has a secret in its command line, which `ps` shows to every user of the machine.",
    "Put ${NAME} into [shell.env], and let the command read that variable.",
)

# ---------------------------------------------------------------- spiders and plugins

BAD_SPIDER: Final = refusal(
    "bad_spider", "The spider's file is not valid Python.", "Correct the line in the message."
)
BAD_HASH: Final = refusal(
    "bad_hash",
    "The job's code does not match its hash.",
    "Do not write [code] yourself; `zcrawl submit` puts the spider's file there.",
)
NO_HANDLER: Final = refusal(
    "no_handler",
    "The spider yields requests for a handler that it does not have.",
    "Correct the name, or add the method.",
)
NO_START: Final = refusal(
    "no_start",
    "The job has neither seeds nor a method `start` in its spider.",
    "Give a URL, `seeds` in the job file, or write `start`.",
)
NO_PLUGIN: Final = refusal(
    "no_plugin",
    "The job names a plugin that is not installed here.",
    "Install its package, or correct the name.",
)
UNUSED_OPTIONS: Final = refusal(
    "unused_options",
    "The job has options for a plugin that it does not use.",
    "Correct the name below [plugins], or name the plugin in the job.",
)
PLUGIN: Final = refusal(
    "plugin", "A plugin failed without a more exact code.", "Read the message and the log."
)
PLUGIN_MISSING: Final = refusal(
    "plugin_missing",
    "A plugin or spider that the run needs is not installed on this node.",
    "Install its package on the workers. Workers that have it get the work.",
)
PLUGIN_BROKEN: Final = refusal(
    "plugin_broken",
    "A plugin is installed, but it cannot be loaded or created.",
    "The message has the error. Check its options below [plugins] and its version.",
)
MISSING_EXTRA: Final = refusal(
    "missing_extra",
    "The job needs a Python package that is not installed.",
    "Run the `pip install` command in the message.",
)
NO_BROWSER: Final = refusal(
    "no_browser",
    "The job needs a browser, but Playwright or Chromium is not installed here.",
    "pip install 'zcrawl[browser]', then install Chromium: docs/browser.md.",
)
NO_SUCH_FIELD: Final = refusal(
    "no_such_field",
    "The item schema names a field that no block of [extract] has.",
    "Correct its spelling, or add the field to a block. The message lists the fields.",
)
NO_SEEDS: Final = refusal(
    "no_seeds",
    "The stored job took its seeds from a list, and the list is not stored.",
    "Give the list again: `zcrawl submit NAME --again --seeds FILE`.",
)

# ---------------------------------------------------------------- lists of standalone nodes

NODE_ID_UNSET: Final = refusal(
    "node_id_unset",
    "There is a list of nodes, but this node has no id, so it cannot find its share.",
    "Set ZCRAWL_NODE_ID, standalone.id or --id to one of the names in the list.",
)
EMPTY_NODE_LIST: Final = refusal(
    "empty_node_list",
    "The list of nodes has no node, or an empty name.",
    "Write the id of each node into the list. Without any list, one node owns everything.",
)
NODE_NOT_LISTED: Final = refusal(
    "node_not_listed",
    "The list of nodes does not have this node.",
    "Correct the id or the list. The message shows both.",
)
DUPLICATE_NODES: Final = refusal(
    "duplicate_nodes",
    "The list of nodes has the same id or address more than once.",
    "Give each node its own id, and name it once.",
)
BAD_NODE_LIST: Final = refusal(
    "bad_node_list",
    "The list of nodes cannot be read.",
    'Write JSON, such as ["node-1", "node-2"], or one id a line.',
)
