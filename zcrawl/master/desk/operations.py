"""All operations that a client can request of a master: one declaration for each.

A new operation is a declaration here and its handler in the desk; `make tables` brings the table in
docs/protocol.md up to date. Everybody else looks operations up by `find`. Pure.
"""

from __future__ import annotations

from typing import Final

from zcrawl.master.desk.operation import (
    OPERATIONS,
    Argument,
    EveryMaster,
    FromDatabase,
    FromMemory,
    LeaderAction,
    LeaderView,
    Operation,
    Repeat,
    Right,
    Type,
    declare,
)

_REF: Final = Argument("ref", Type.TEXT, required=True, about="id or name of a job")
_RUN: Final = Argument("run", Type.INTEGER)
_OF_RUN: Final = Argument("run", Type.INTEGER, required=True)
_NODE: Final = Argument("node", Type.TEXT, required=True)
_LIMIT: Final = Argument("limit", Type.INTEGER, default=100, about="1 to 500")
_REASON: Final = Argument("reason", Type.TEXT, default="")
_HOST: Final = Argument("host", Type.INTEGER, default=0, about="id")
_SEEDS: Final = Argument(
    "seeds", Type.LIST, required=True, about="at most 1,000, with 500,000 characters"
)
_PACE: Final = (
    Argument("rate", Type.NUMBER, about="one of these at least"),
    Argument("concurrency", Type.INTEGER),
    Argument("burst", Type.INTEGER),
)
PAGING: Final = (
    Argument("filter", Type.TEXT),
    Argument("inverse", Type.FLAG),
    Argument("sort", Type.TEXT),
    Argument("desc", Type.FLAG),
    Argument("offset", Type.INTEGER),
    Argument("limit", Type.INTEGER, about="1 to 500"),
)


def find(name: str) -> Operation | None:
    """Return the operation of that name, or None."""
    return OPERATIONS.get(name)


# ---------------------------------------------------------------- who and where

ROLE: Final = declare(
    "role",
    right=Right.WORKER,
    repeat=Repeat.READ,
    handler=EveryMaster(lambda master, request: {"role": request.role}),
    answer="role: what the key may do; empty where there are no keys",
)
MASTERS: Final = declare(
    "masters",
    right=Right.WORKER,  # where there is no Consul a worker asks for them
    repeat=Repeat.READ,
    handler=EveryMaster(lambda master, request: {"masters": master.catalogue.endpoints()}),
    answer="how to reach each master",
)
declare(
    "nodes",
    right=Right.VIEWER,
    repeat=Repeat.READ,
    handler=FromMemory(lambda desk: desk.nodes, lambda follower: follower.nodes),
    answer="masters, workers, drained",
)

# ---------------------------------------------------------------- jobs and what they have

declare(
    "submit",
    Argument("spec", Type.TABLE, about="the job; not with `ref`"),
    Argument("mode", Type.TEXT, required=True, about="new, update, again"),
    _SEEDS,
    Argument("seeding", Type.FLAG, about="more seeds follow"),
    Argument("output", Type.LIST, about="path, format"),
    Argument("ref", Type.TEXT, about="with again: id or name of the job"),
    Argument("no_run", Type.FLAG, about="only store the spec"),
    Argument("live", Type.FLAG, about="with update: live runs get the new spec, none starts"),
    Argument("restart", Type.FLAG, about="cancel the live runs of the job and start anew"),
    Argument("params", Type.TABLE, about="values of the job's parameters"),
    Argument("opened", Type.LIST, about="only from the process of the master itself"),
    right=Right.SUBMITTER,
    repeat=Repeat.OWN_COMMAND,
    handler=LeaderAction(
        lambda desk: desk.submissions.submit, lambda desk: desk.submissions.submit_again
    ),
    answer="job, run (0: none was started), admitted; workers that may take it, or why it waits; "
    "held, held_run, after: it starts as this run when no run of the job is alive",
    audited=True,
    own=True,
)
declare(
    "add_seeds",
    _OF_RUN,
    _SEEDS,
    Argument("last", Type.FLAG, required=True),
    right=Right.SUBMITTER,
    repeat=Repeat.OWN_COMMAND,
    handler=LeaderAction(lambda desk: desk.submissions.add_seeds),
    answer="job, run, admitted",
    own=True,
)
declare(
    "jobs",
    Argument("tag", Type.TEXT, default=""),
    Argument("archived", Type.FLAG, about="archived jobs too"),
    Argument("owner", Type.TEXT, default="", about="only its jobs; `me`: of the one who asks"),
    right=Right.VIEWER,
    repeat=Repeat.READ,
    handler=FromDatabase(lambda reads: reads.list_jobs, lambda reads: reads.jobs_answer),
    answer="views of all jobs",
)
declare(
    "job",
    _REF,
    _RUN,
    right=Right.VIEWER,
    repeat=Repeat.READ,
    handler=FromDatabase(lambda reads: reads.find_job, lambda reads: reads.job_answer),
    answer="view of the newest run, or of the one named",
)
declare(
    "run",
    _OF_RUN,
    right=Right.VIEWER,
    repeat=Repeat.READ,
    handler=FromDatabase(lambda reads: reads.find_run, lambda reads: reads.run_answer),
    answer="as job, for this run",
)
declare(
    "schedule",
    Argument("ref", Type.TEXT, default="", about="id or name of a job; else all with a schedule"),
    Argument("limit", Type.INTEGER, default=1, about="due times of each, 1 to 500"),
    right=Right.VIEWER,
    repeat=Repeat.READ,
    handler=FromDatabase(lambda reads: reads.read_schedules, lambda reads: reads.schedules_answer),
    answer="jobs with a schedule: state, what they wait for, next due times",
)
declare(
    "runs",
    Argument("ref", Type.TEXT, default="", about="id or name of a job; else of all jobs"),
    Argument("before", Type.INTEGER, default=0, about="number of a run; 0: the newest"),
    _LIMIT,
    right=Right.VIEWER,
    repeat=Repeat.READ,
    handler=FromDatabase(lambda reads: reads.read_runs, lambda reads: reads.runs_answer),
    answer="runs, newest first",
)
declare(
    "items",
    _RUN,
    Argument("before", Type.INTEGER, default=0, about="id; 0: the newest"),
    Argument("after", Type.INTEGER, about="id; oldest first from there, of one run, without text"),
    Argument("text", Type.TEXT, default=""),
    _LIMIT,
    right=Right.VIEWER,
    repeat=Repeat.READ,
    handler=FromDatabase(lambda reads: reads.find_items, lambda reads: reads.items_answer),
    answer="rows, newest first, or oldest first with `after`; last, more",
)
declare(
    "failed",
    _OF_RUN,
    _REASON,
    _HOST,
    Argument("after", Type.INTEGER, default=0, about="number of a request"),
    _LIMIT,
    right=Right.VIEWER,
    repeat=Repeat.READ,
    handler=FromDatabase(lambda reads: reads.read_failed, lambda reads: reads.failed_answer),
    answer="rows, with `detail` where it was kept",
)

declare(
    "history",
    Argument("span_s", Type.NUMBER, default=900.0, about="10 to 86,400"),
    _RUN,
    Argument("host", Type.INTEGER, about="id; without run and host: the cluster"),
    right=Right.VIEWER,
    repeat=Repeat.READ,
    handler=FromDatabase(lambda reads: reads.read_history, lambda reads: reads.history_answer),
    answer="step_s, at, and columns of the same length; null where nothing was counted",
)

# ---------------------------------------------------------------- actions

declare(
    "act",
    _REF,
    Argument("action", Type.TEXT, required=True, about="pause, resume, cancel, delete, retry"),
    Argument("run", Type.INTEGER, about="else all live runs; retry: the newest; delete: the job"),
    Argument("runs", Type.LIST, about="with delete of a job: refused if it has others"),
    Argument("reason", Type.TEXT, default="", about="with retry"),
    Argument("host", Type.INTEGER, default=0, about="id, with retry"),
    Argument("ended_at", Type.NUMBER, about="with delete and run: only if it ended then, UTC"),
    right=Right.SUBMITTER,
    repeat=Repeat.ANSWER_STORED,
    handler=LeaderAction(lambda desk: desk.run_actions.find_job, lambda desk: desk.run_actions.act),
    answer="job, run, state, changed",
    audited=True,
    own=True,
)
declare(
    "change_job",
    _REF,
    Argument("state", Type.TEXT, required=True, about="active, paused, archived"),
    right=Right.SUBMITTER,
    repeat=Repeat.ANSWER_STORED,
    handler=LeaderAction(
        lambda desk: desk.run_actions.find_job, lambda desk: desk.run_actions.change_job
    ),
    answer="job, state, changed; its runs are not affected",
    audited=True,
    own=True,
)
declare(
    "prune",
    Argument("ref", Type.TEXT, default="", about="id or name of a job; else of all jobs"),
    Argument("dry_run", Type.FLAG, about="only list them"),
    right=Right.OPERATOR,
    repeat=Repeat.SAME_RESULT,
    handler=LeaderAction(
        lambda desk: desk.run_actions.prune, lambda desk: desk.run_actions.prune_job
    ),
    answer="runs to remove, at most 500, and why; without dry_run the leader removes them now",
    audited=True,
)
declare(
    "versions",
    _REF,
    right=Right.VIEWER,
    repeat=Repeat.READ,
    handler=FromDatabase(lambda reads: reads.find_job, lambda reads: reads.versions_answer),
    answer="versions of the spec, newest first: version, at, author, changes",
)
declare(
    "tune",
    _REF,
    _RUN,
    *_PACE,
    Argument("max_depth", Type.INTEGER),
    Argument("max_pages", Type.INTEGER, about="0: no limit"),
    Argument("max_pages_per_host", Type.INTEGER, about="0: no limit; of a run that has one"),
    Argument("tags", Type.LIST, about="instead of those it has"),
    right=Right.SUBMITTER,
    repeat=Repeat.ANSWER_STORED,
    handler=LeaderAction(
        lambda desk: desk.run_actions.find_job, lambda desk: desk.run_actions.tune
    ),
    answer="as act; the run's spec has the new values, and workers are told at once",
    audited=True,
    own=True,
)
declare(
    "drain",
    _NODE,
    right=Right.OPERATOR,
    repeat=Repeat.ANSWER_STORED,
    handler=LeaderAction(lambda desk: desk.drain),
    answer="node, state, changed",
    audited=True,
)
declare(
    "undrain",
    _NODE,
    right=Right.OPERATOR,
    repeat=Repeat.ANSWER_STORED,
    handler=LeaderAction(lambda desk: desk.undrain),
    answer="node, state, changed",
    audited=True,
)
declare(
    "reassign",
    Argument("host", Type.TEXT, required=True, about="origin or id"),
    _NODE,
    right=Right.OPERATOR,
    repeat=Repeat.ANSWER_STORED,
    handler=LeaderAction(lambda desk: desk.reassign),
    answer="host, node; the host moves when its owner has let go; stored until the next one",
    audited=True,
)
declare(
    "rebalance",
    Argument("epoch", Type.INTEGER, required=True),
    right=Right.OPERATOR,
    repeat=Repeat.NAMES_EPOCH,
    handler=LeaderAction(lambda desk: desk.rebalance),
    answer="workers, moves, epoch, now; hosts move when their owners have let go",
    audited=True,
)
declare(
    "step_down",
    Argument("epoch", Type.INTEGER, required=True),
    right=Right.OPERATOR,
    repeat=Repeat.NAMES_EPOCH,
    handler=LeaderAction(lambda desk: desk.step_down),
    answer="leader, epoch, now; the leader of that epoch gives up the lock",
    audited=True,
)

declare(
    "reload",
    Argument("reload", Type.TEXT, required=True, about="id that the client chose"),
    Argument("node", Type.TEXT, default="", about="else all nodes"),
    right=Right.OPERATOR,
    repeat=Repeat.SAME_ID,
    handler=LeaderAction(lambda desk: desk.reload),
    answer="as reloaded; each node reads its own configuration again",
    audited=True,
)
declare(
    "reloaded",
    Argument("reload", Type.TEXT, required=True, about="its id"),
    right=Right.VIEWER,
    repeat=Repeat.READ,
    handler=LeaderAction(lambda desk: desk.reloaded),
    answer="began, waiting: processes without an answer; nodes: what changed on each",
)

# ---------------------------------------------------------------- the leader's memory

declare(
    "overview",
    right=Right.VIEWER,
    repeat=Repeat.READ,
    handler=LeaderView(lambda views: views.overview),
    answer="limits: why it is not faster; commit_queue, window_rows, hosts",
)
declare(
    "balance",
    right=Right.VIEWER,
    repeat=Repeat.READ,
    handler=LeaderView(lambda views: views.balance),
    answer="workers: capacity and load; moves: the hosts that `rebalance` would move, and why",
)
declare(
    "hosts",
    _RUN,
    *PAGING,
    right=Right.VIEWER,
    repeat=Repeat.READ,
    handler=LeaderView(lambda views: views.hosts),
    answer="rows, total, offset",
)
declare(
    "queues",
    Argument("by", Type.TEXT, default="job", about="job, tag, host"),
    Argument("tag", Type.TEXT, default=""),
    *PAGING,
    right=Right.VIEWER,
    repeat=Repeat.READ,
    handler=LeaderView(lambda views: views.queues),
    answer="rows, total, offset; commit_queue, out_of_order",
)
declare(
    "lanes",
    _OF_RUN,
    *PAGING,
    right=Right.VIEWER,
    repeat=Repeat.READ,
    handler=LeaderView(lambda views: views.lanes),
    answer="rows, total, offset",
)
declare(
    "errors",
    _RUN,
    *PAGING,
    right=Right.VIEWER,
    repeat=Repeat.READ,
    handler=LeaderView(lambda views: views.errors),
    answer="rows, total, offset; complete: failures before this leader are counted, too",
)
declare(
    "events",
    *PAGING,
    right=Right.VIEWER,
    repeat=Repeat.READ,
    handler=LeaderView(lambda views: views.events),
    answer="rows, total, offset",
)
declare(
    "in_flight",
    Argument("worker", Type.TEXT),
    _RUN,
    Argument("host", Type.INTEGER, about="id"),
    *PAGING,
    right=Right.VIEWER,
    repeat=Repeat.READ,
    handler=LeaderView(lambda views: views.in_flight),
    answer="rows, total, offset",
)
declare(
    "node",
    _NODE,
    right=Right.VIEWER,
    repeat=Repeat.READ,
    handler=LeaderView(lambda views: views.node),
    answer="one worker",
)
declare(
    "owner",
    Argument("resource", Type.TEXT, required=True, about="a host, a URL or any id"),
    right=Right.VIEWER,
    repeat=Repeat.READ,
    handler=LeaderView(lambda views: views.owner),
    answer="resource, owner, held: whether it is granted now; nodes, fingerprint of the list",
)
declare(
    "depths",
    _OF_RUN,
    right=Right.VIEWER,
    repeat=Repeat.READ,
    handler=LeaderView(lambda views: views.depths),
    answer="pages by depth",
)

# ---------------------------------------------------------------- users, tokens, audit

_NAME: Final = Argument("name", Type.TEXT, required=True)
_ROLE: Final = "viewer, submitter, operator, admin"
_RIGHTS: Final = "code, shell, private"
_QUOTAS: Final = "most_live_runs, most_queued, most_rate; null: no limit"
_PREFIX: Final = Argument("prefix", Type.TEXT, required=True, about="zc_ and 8 characters")
_DIGEST: Final = Argument("digest", Type.TEXT, required=True, about="blake2b of the token, hex")

declare(
    "authenticate",
    _PREFIX,
    _DIGEST,
    right=Right.GATEWAY,
    repeat=Repeat.READ,
    handler=FromDatabase(lambda reads: reads.check_token, lambda reads: reads.token_answer),
    answer="user, role, rights, token, expires_at (0: never), quotas",
)
declare(
    "users",
    right=Right.ADMIN,
    repeat=Repeat.READ,
    handler=FromDatabase(lambda reads: reads.read_users, lambda reads: reads.users_answer),
    answer="users",
)
declare(
    "user_add",
    _NAME,
    Argument("role", Type.TEXT, required=True, about=_ROLE),
    Argument("rights", Type.LIST, about=_RIGHTS),
    Argument("quotas", Type.TABLE, about=_QUOTAS),
    right=Right.ADMIN,
    repeat=Repeat.ANSWER_STORED,
    handler=LeaderAction(lambda desk: desk.people.add_user),
    answer="user",
    audited=True,
)
declare(
    "user_change",
    _NAME,
    Argument("role", Type.TEXT, about=_ROLE),
    Argument("rights", Type.LIST, about=_RIGHTS),
    Argument("quotas", Type.TABLE, about=_QUOTAS),
    Argument("disabled", Type.FLAG),
    right=Right.ADMIN,
    repeat=Repeat.ANSWER_STORED,
    handler=LeaderAction(lambda desk: desk.people.change_user),
    answer="user, changed; what is not given stays",
    audited=True,
)
declare(
    "tokens",
    Argument("user", Type.TEXT, default="", about="else all; only an admin sees those of others"),
    right=Right.VIEWER,
    repeat=Repeat.READ,
    handler=FromDatabase(lambda reads: reads.read_tokens, lambda reads: reads.tokens_answer),
    answer="tokens, newest first",
)
declare(
    "token_create",
    Argument("user", Type.TEXT, default="", about="else its own; only an admin names others"),
    Argument("role", Type.TEXT, required=True, about=f"{_ROLE}; at most the user's"),
    Argument("rights", Type.LIST, about="else all of the user's"),
    Argument("days", Type.NUMBER, default=0.0, about="0: it does not expire"),
    _PREFIX,
    _DIGEST,
    right=Right.SUBMITTER,
    repeat=Repeat.ANSWER_STORED,
    handler=LeaderAction(lambda desk: desk.people.create_token),
    answer="token: its view, without anything secret",
    audited=True,
)
declare(
    "token_revoke",
    _PREFIX,
    right=Right.SUBMITTER,
    repeat=Repeat.ANSWER_STORED,
    handler=LeaderAction(lambda desk: desk.people.revoke_token),
    answer="token, changed",
    audited=True,
)
declare(
    "audit",
    Argument("since", Type.NUMBER, default=0.0, about="UTC seconds"),
    Argument("until", Type.NUMBER, about="UTC seconds; lines before it"),
    Argument("user", Type.TEXT, default=""),
    Argument("job", Type.TEXT, default="", about="id or name"),
    Argument("before", Type.INTEGER, default=0, about="id; 0: the newest first"),
    Argument("after", Type.INTEGER, about="id; the oldest first"),
    _LIMIT,
    right=Right.ADMIN,
    repeat=Repeat.READ,
    handler=FromDatabase(lambda reads: reads.read_audit, lambda reads: reads.audit_answer),
    answer="rows: who did what to what, from where, with which result",
)
declare(
    "audit_archive",
    Argument("before", Type.NUMBER, required=True, about="UTC seconds; lines before it"),
    Argument("last", Type.INTEGER, required=True, about="id of the last line in the archive"),
    Argument("file", Type.TEXT, required=True, about="where the client has written them"),
    right=Right.ADMIN,
    repeat=Repeat.ANSWER_STORED,
    handler=LeaderAction(lambda desk: desk.people.remove_audit),
    answer="removed, more; some lines at a time",
    audited=True,
)

# ---------------------------------------------------------------- secrets of jobs

_SECRET: Final = Argument("secret", Type.TEXT, required=True, about="its name")
declare(
    "secret_set",
    _SECRET,
    Argument("value", Type.TEXT, about="never stored or logged as it is"),
    Argument("hosts", Type.LIST, about="that may get it"),
    Argument("commands", Type.LIST, about="that may get it in their environment"),
    right=Right.ADMIN,
    repeat=Repeat.ANSWER_STORED,
    handler=LeaderAction(lambda desk: desk.secrets.set),
    answer="secret, key: id of the key that sealed it; hosts, commands",
    audited=True,
)
declare(
    "secret_list",
    right=Right.ADMIN,
    repeat=Repeat.READ,
    handler=LeaderAction(lambda desk: desk.secrets.list),
    answer="secrets: names, keys, hosts, commands, who changed them; never values",
)
declare(
    "secret_delete",
    _SECRET,
    right=Right.ADMIN,
    repeat=Repeat.ANSWER_STORED,
    handler=LeaderAction(lambda desk: desk.secrets.delete),
    answer="secret",
    audited=True,
)
declare(
    "secret_rotate",
    right=Right.ADMIN,
    repeat=Repeat.ANSWER_STORED,
    handler=LeaderAction(lambda desk: desk.secrets.rotate),
    answer="rotated: names that were sealed with the newest key",
    audited=True,
)
