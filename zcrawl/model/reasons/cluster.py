"""Why the cluster refuses a request, a node refuses another, or nobody answers."""

from __future__ import annotations

from typing import Final

from zcrawl.model.reasons.reason import ParameterForm, ReasonKind, refusal

# ---------------------------------------------------------------- nobody answers

UNREACHABLE: Final = refusal(
    "unreachable",
    "No master answered in time.",
    "Check the address and that a master runs: `zcrawl nodes`. Then try again.",
)
NO_LEADER: Final = refusal(
    "no_leader",
    "The masters have no leader right now.",
    "Wait some seconds and try again. `zcrawl nodes` shows the masters.",
)
NO_MASTER: Final = refusal(
    "no_master",
    "No master of this cluster is registered in Consul.",
    "Start one with `zcrawl master`, or correct cluster.name.",
)
CONSUL_AWAY: Final = refusal(
    "consul_away",
    "Consul does not answer.",
    "Check consul.address and the agent, then try again.",
)
WORKERS_FAIL: Final = refusal(
    "workers_fail",
    "The worker processes end again and again.",
    "The message and the log have the cause. `zcrawl doctor` checks the machine.",
)
MACHINE_ERROR: Final = refusal(
    "machine_error",
    "An error inside the leader stopped it several times in a row.",
    "The log has the traceback. Please report it.",
)

# ---------------------------------------------------------------- requests of clients

REFUSED: Final = refusal(
    "refused", "The cluster refused the request without a more exact code.", "Read the message."
)
FORBIDDEN: Final = refusal(
    "forbidden",
    "The key of this client may not do that.",
    "Use a key with the role operator: `zcrawl keys allow --role operator`.",
)
BAD_REQUEST: Final = refusal(
    "bad_request",
    "An argument of the request is missing or wrong.",
    "Correct it as the message says. Check that client and master have the same version.",
)
UNKNOWN_OP: Final = refusal(
    "unknown_op",
    "The master does not know this request.",
    "Use the same version of zcrawl on client and master.",
)
TOO_MANY_REQUESTS: Final = refusal(
    "too_many_requests",
    "The key sends requests faster than the masters accept.",
    "Wait and try again. Clients that run in parallel can use keys of their own.",
)
TOO_MANY_SEEDS: Final = refusal(
    "too_many_seeds",
    "One request has more seeds, or longer ones, than a master accepts at once.",
    "Send them in parts; `zcrawl submit --seeds FILE` does that.",
)
NO_SUCH_JOB: Final = refusal(
    "no_such_job", "There is no job of this name or id.", "`zcrawl jobs` lists all jobs."
)
NO_SUCH_RUN: Final = refusal(
    "no_such_run", "The job has no run of this number.", "`zcrawl job JOB` lists its runs."
)
NO_SUCH_NODE: Final = refusal(
    "no_such_node",
    "There is no worker of this name that could be used.",
    "`zcrawl nodes` lists the workers.",
)
NO_SUCH_HOST: Final = refusal(
    "no_such_host",
    "The host is not being crawled.",
    "Write it as https://example.com; the console's page of hosts lists them.",
)
NO_SUCH_TAG: Final = refusal(
    "no_such_tag", "No active job has this tag.", "`zcrawl jobs` shows the tags."
)
KEY_REUSED: Final = refusal(
    "key_reused",
    "The Idempotency-Key was used before, for a request with another body.",
    "Use a new key for each new request, and the same one only to repeat it.",
)
UNAUTHORIZED: Final = refusal(
    "unauthorized",
    "The gateway does not know who sends this request.",
    "Send `Authorization: Bearer TOKEN`; `zcrawl token create` makes a token.",
)
BODY_TOO_LARGE: Final = refusal(
    "body_too_large",
    "The body or the header of the HTTP request is longer than the gateway accepts.",
    "Send seeds by POST /v1/jobs/ID/seeds, or raise gateway.max_body.",
)
BODY_TOO_SLOW: Final = refusal(
    "body_too_slow",
    "The HTTP request did not arrive, or was not answered, in time.",
    "Send it again. gateway.timeout sets the time.",
)
NO_SUCH_ROUTE: Final = refusal(
    "no_such_route",
    "The gateway has no such path, or not for this method.",
    "/v1/docs lists all routes.",
)
NAME_EXISTS: Final = refusal(
    "name_exists",
    "A job of this name exists.",
    "--update replaces its spec and runs it, --again runs it as it is.",
)
UNSEEN_RUNS: Final = refusal(
    "unseen_runs",
    "The job has a run that was not shown when its deletion was confirmed.",
    "`zcrawl job JOB` lists its runs. Delete the job again if that run may go, too.",
)
RUN_ENDED: Final = refusal(
    "run_ended",
    "The run has ended, so it cannot be changed.",
    "`zcrawl submit --again` starts a new run.",
)
RUN_REOPENED: Final = refusal(
    "run_reopened",
    "The run was to be removed, but a retry has reopened it since.",
    "Nothing: the rule of retention looks at it again after its end.",
)
JOB_ARCHIVED: Final = refusal(
    "job_archived",
    "The job is archived, so it starts no run.",
    "`zcrawl archive JOB --undo` takes it back.",
)
RUN_IS_ALIVE: Final = refusal(
    "run_is_alive",
    "A run of the job is alive, and the job's overlap does not allow another one beside it.",
    "Wait for its end, cancel it, or submit with --restart. `zcrawl runs JOB` lists the runs.",
)
START_IS_HELD: Final = refusal(
    "start_is_held",
    "Another start of the job waits already for the end of its live run, and only one can wait.",
    "Submit again after it has started. `zcrawl schedule pause JOB` and `resume JOB` drop what "
    "waits; --restart starts at once.",
)
JOB_CHANGED: Final = refusal(
    "job_changed",
    "The job was changed or paused while its schedule was about to start a run.",
    "Nothing: the leader looks at the job as it is now.",
)
NOT_LIVE: Final = refusal(
    "not_live",
    "A key of the new spec cannot change in a run that is alive.",
    "Submit with --restart to cancel that run and start anew, or without --live to leave it.",
)
SPREAD: Final = refusal(
    "spread",
    "The host is shared by several workers, so it cannot be given to one.",
    "Set politeness.spread = false in its job.",
)
IN_USE: Final = refusal(
    "in_use",
    "Another zcrawl process uses the data folder.",
    "`zcrawl submit` gives the job to it, or use another folder with --data.",
)
READONLY: Final = refusal(
    "readonly",
    "Nothing can be changed here: the console or the database was opened for reading only.",
    "Open the console without --readonly.",
)
REPLAY: Final = refusal(
    "replay",
    "This is a recording, and it does not contain this information.",
    "Open the console without --replay.",
)

# ---------------------------------------------------------------- messages and addresses

MESH: Final = refusal(
    "mesh", "A message could not be sent or received.", "Read the message and the log."
)
VERSION: Final = refusal(
    "version",
    "The other side speaks another version of the protocol.",
    "Install the same version of zcrawl everywhere.",
)
BAD_FRAME: Final = refusal(
    "bad_frame",
    "Something that is not a valid zcrawl message arrived.",
    "Check who connects to the mesh ports. Allow only your own nodes.",
)
UNKNOWN_TYPE: Final = refusal(
    "unknown_type",
    "A message of an unknown type arrived.",
    "Install the same version of zcrawl everywhere.",
)
MESSAGE_TOO_LARGE: Final = refusal(
    "message_too_large",
    "A message is larger than the mesh carries.",
    "Send less at once: fewer seeds, a smaller job or a smaller page.",
)
BAD_ENDPOINT: Final = refusal(
    "bad_endpoint",
    "An address of the mesh is not valid or cannot be used.",
    "Correct cluster.masters, mesh.bind or mesh.advertise: host:port.",
)
ADDRESS_IN_USE: Final = refusal(
    "address_in_use",
    "Another process uses the port.",
    "Stop it, or choose another port (mesh.control_port, --port).",
)
CANNOT_BIND: Final = refusal(
    "cannot_bind",
    "The address cannot be bound: this machine does not have it, or it is not allowed.",
    "Correct mesh.bind.",
)
INSECURE_BIND: Final = refusal(
    "insecure_bind",
    "The mesh would be open to other machines without keys.",
    "Make keys with `zcrawl keys new`, or set mesh.insecure = true in a closed network.",
)

# ---------------------------------------------------------------- keys and names

BAD_KEY: Final = refusal(
    "bad_key",
    "A key is missing, unreadable or not a key.",
    "`zcrawl keys new` makes one; mesh.key_file and mesh.server_key name them.",
)
BAD_NAME: Final = refusal(
    "bad_name",
    "The name of a key is not valid or is taken.",
    "Use 1 to 64 letters, digits, . _ @ -.",
)
BAD_ROLE: Final = refusal(
    "bad_role",
    "A key has a role that does not exist or does not fit.",
    "Use worker, viewer or operator.",
)
BAD_ALLOW_LIST: Final = refusal(
    "bad_allow_list",
    "The list of allowed keys cannot be read or written.",
    "Correct the line in the message, or the permissions of mesh.allow_file.",
)
OPEN_KEY_FILE: Final = refusal(
    "open_key_file",
    "Other users can read the key file.",
    "chmod 600 the file.",
)
FILE_EXISTS: Final = refusal(
    "file_exists",
    "The key file is there already and is not replaced.",
    "Choose another file, or move the old one away.",
)
KEY_REMOVED: Final = refusal(
    "key_removed",
    "The key is no longer in the masters' list.",
    "`zcrawl keys allow` adds it again.",
)
KEY_NOT_ALLOWED: Final = refusal(
    "key_not_allowed",
    "The key is not allowed as the key of a worker (any more).",
    "`zcrawl keys allow --role worker` allows it.",
)
NAME_NOT_ALLOWED: Final = refusal(
    "name_not_allowed",
    "The worker's key may not use the worker's name.",
    "Change cluster.id, or allow the name with `zcrawl keys allow --names`.",
)
ID_TAKEN: Final = refusal(
    "id_taken",
    "Another living node is registered under the same id.",
    "Give this one a cluster.id of its own; a standalone node: ZCRAWL_NODE_ID.",
)
DUPLICATE_ID: Final = refusal(
    "duplicate_id",
    "Another living worker has the same id.",
    "Give this one a cluster.id of its own (--id).",
)
STALE_EPOCH: Final = refusal(
    "stale_epoch",
    "A former leader sent a message, but a newer leader exists.",
    "Nothing: the former leader steps down.",
)

# ---------------------------------------------------------------- assignments that a worker rejects

UNKNOWN_RUN: Final = refusal(
    "unknown_run",
    "The worker has not got the run's configuration yet.",
    "Nothing: the leader sends it, and the URL is sent again.",
)
NO_CODE: Final = refusal(
    "no_code",
    "The worker has not got the spider's file yet.",
    "Nothing: the leader sends it, and the URL is sent again.",
    also=(ReasonKind.FAILURE,),
)
NO_GRANT: Final = refusal(
    "no_grant",
    "The worker may not fetch from this host (any more).",
    "Nothing: the URL goes to the host's owner.",
)
OVER_CAPACITY: Final = refusal(
    "over_capacity",
    "The worker holds as many URLs as it can.",
    "Nothing: another worker gets the URL. Add workers if it happens often.",
)
ANOTHER_HOST: Final = refusal(
    "another_host",
    "The worker holds this request under another host.",
    "Look at the master's log. Please report it: a request stays with its host.",
)
OVERTAKEN: Final = refusal(
    "overtaken",
    "The assignment is older than a revocation that arrived before it.",
    "Nothing: the URL is sent again.",
)
NOT_WELCOMED: Final = refusal(
    "not_welcomed",
    "The leader has not accepted the worker yet.",
    "Nothing: the URL is sent again.",
)
LACKS: Final = refusal(
    "lacks",
    "The worker lacks a plugin, spider or package that the run needs.",
    "Install it on the workers. Workers that have it get the work.",
    form=ParameterForm.NAME,
)


def lacks(what: str) -> str:
    """Return the reason of a worker that lacks `what`, for logs."""
    return f"{LACKS} {what}"
