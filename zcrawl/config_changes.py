"""Decide what a changed configuration means for a running node.

Called by `roles.live_config`, which reads the file again. Pure. `KEY_USES` says for every key, and
for each kind of node, when a new value takes effect:

| use     | effect of a new value                                                     |
|---------|---------------------------------------------------------------------------|
| LIVE    | at once, in the running process                                           |
| RENEWED | the node replaces its worker processes one by one; nothing is interrupted |
| RESTART | only after a restart of the node; until then the old value is in force    |
| UNUSED  | this kind of node does not read the key                                   |

Invariants: a configuration that is not valid does not reach this module, so a change is applied as
a whole; `changes(...).config` has the old value of each key that needs a restart, so that the next
comparison names it again; no secret appears in a line.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from typing import Any, Final

import msgspec

from zcrawl.config import HIDDEN, SECRETS, Config, all_keys, hidden_keys
from zcrawl.model.reload_report import LINES_MOST, ReloadReport, cut


class NodeKind(enum.Enum):
    MASTER = "master"
    WORKER = "worker"
    EMBEDDED = "embedded"  # `zcrawl up`: a master and its workers in one folder


class KeyUse(enum.Enum):
    LIVE = "live"
    RENEWED = "processes are replaced"
    RESTART = "restart"
    UNUSED = "not used"


class KeyUses(msgspec.Struct, frozen=True):
    """When a new value of one key takes effect, by the kind of node."""

    master: KeyUse
    worker: KeyUse
    embedded: KeyUse

    def of(self, kind: NodeKind) -> KeyUse:
        uses: dict[NodeKind, KeyUse] = {
            NodeKind.MASTER: self.master,
            NodeKind.WORKER: self.worker,
            NodeKind.EMBEDDED: self.embedded,
        }
        return uses[kind]


_LIVE, _RENEWED, _RESTART, _UNUSED = KeyUse.LIVE, KeyUse.RENEWED, KeyUse.RESTART, KeyUse.UNUSED
_EVERYWHERE_LIVE: Final = KeyUses(_LIVE, _LIVE, _LIVE)
_RESTART_ALL: Final = KeyUses(_RESTART, _RESTART, _RESTART)
_RESTART_NODES: Final = KeyUses(_RESTART, _RESTART, _UNUSED)
_RESTART_GATEWAYS: Final = KeyUses(_RESTART, _UNUSED, _RESTART)  # of their children
_RESTART_MASTER: Final = KeyUses(_RESTART, _UNUSED, _UNUSED)
_LIMIT: Final = KeyUses(_UNUSED, _LIVE, _LIVE)
_OF_PROCESSES: Final = KeyUses(_UNUSED, _RENEWED, _RENEWED)
_OF_PEOPLE: Final = KeyUses(_UNUSED, _UNUSED, _UNUSED)  # commands and consoles read it each time

KEY_USES: Final[dict[str, KeyUses]] = {
    "gateway.http": _RESTART_GATEWAYS,
    "gateway.tls_cert": _RESTART_GATEWAYS,
    "gateway.tls_key": _RESTART_GATEWAYS,
    "gateway.insecure": _RESTART_GATEWAYS,
    "gateway.rate": _RESTART_GATEWAYS,
    "gateway.burst": _RESTART_GATEWAYS,
    "gateway.connections": _RESTART_GATEWAYS,
    "gateway.max_body": _RESTART_GATEWAYS,
    "gateway.timeout": _RESTART_GATEWAYS,
    "gateway.cors": _RESTART_GATEWAYS,
    "gateway.jwt.keys": _RESTART_GATEWAYS,
    "gateway.jwt.issuer": _RESTART_GATEWAYS,
    "gateway.jwt.audience": _RESTART_GATEWAYS,
    "gateway.jwt.algorithms": _RESTART_GATEWAYS,
    "gateway.jwt.user_claim": _RESTART_GATEWAYS,
    "gateway.jwt.role_claim": _RESTART_GATEWAYS,
    "worker.slots": _LIMIT,
    "worker.task_slots": _OF_PROCESSES,
    "worker.shell.any": _OF_PROCESSES,
    "worker.shell.allow": _OF_PROCESSES,
    "worker.shell.env": _OF_PROCESSES,
    "worker.shell.folders": _OF_PROCESSES,
    "worker.shell.processes": _OF_PROCESSES,
    "worker.shell.max_processes": _OF_PROCESSES,
    "worker.processes": KeyUses(_UNUSED, _RESTART, _RESTART),
    "worker.rate": _LIMIT,
    "worker.bandwidth": _LIMIT,
    "worker.tls_files": _OF_PROCESSES,
    "worker.stuck_after": _OF_PROCESSES,
    "worker.labels": _LIMIT,
    "data.dir": _RESTART_ALL,
    "log.level": _EVERYWHERE_LIVE,
    "log.format": KeyUses(_LIVE, _LIVE, _UNUSED),  # `up` writes JSON lines into a file
    "cluster.name": _RESTART_NODES,
    "cluster.id": _RESTART_NODES,
    "cluster.masters": KeyUses(_UNUSED, _LIVE, _UNUSED),
    "cluster.allow_private": KeyUses(_LIVE, _UNUSED, _UNUSED),
    "cluster.allow_code": KeyUses(_LIVE, _UNUSED, _UNUSED),
    "cluster.allow_shell": KeyUses(_LIVE, _UNUSED, _UNUSED),
    "consul.address": _RESTART_NODES,
    "consul.token": _RESTART_NODES,
    "consul.datacenter": _RESTART_NODES,
    "consul.ca_file": _RESTART_NODES,
    "consul.cert_file": _RESTART_NODES,
    "consul.key_file": _RESTART_NODES,
    "database.urls": _RESTART_MASTER,
    "mesh.bind": _RESTART_MASTER,
    "mesh.advertise": _RESTART_MASTER,
    "mesh.control_port": _RESTART_MASTER,
    "mesh.reports_port": _RESTART_MASTER,
    "mesh.events_port": _RESTART_MASTER,
    "mesh.key_file": KeyUses(_RESTART, _RENEWED, _UNUSED),
    "mesh.server_key": KeyUses(_UNUSED, _RENEWED, _UNUSED),
    "mesh.allow_file": _RESTART_MASTER,  # its name; its content is followed
    "mesh.insecure": _RESTART_MASTER,
    "bodies.url": _RESTART_ALL,
    "bodies.shared": _RESTART_ALL,
    "outputs.dir": _RESTART_MASTER,
    "outputs.shared": _RESTART_MASTER,
    "outputs.allow": KeyUses(_LIVE, _UNUSED, _LIVE),
    "retention.keep_runs": KeyUses(_LIVE, _UNUSED, _LIVE),
    "retention.keep_days": KeyUses(_LIVE, _UNUSED, _LIVE),
    "retention.archive": KeyUses(_LIVE, _UNUSED, _LIVE),
    "tasks.label_limits": KeyUses(_LIVE, _UNUSED, _LIVE),
    "schedules.timezone": KeyUses(_LIVE, _UNUSED, _LIVE),
    "schedules.overlap": KeyUses(_LIVE, _UNUSED, _LIVE),
    "schedules.catch_up": KeyUses(_LIVE, _UNUSED, _LIVE),
    "schedules.jitter": KeyUses(_LIVE, _UNUSED, _LIVE),
    # A node without a master follows its list by itself (roles.node_list_source).
    "standalone.id": _OF_PEOPLE,
    "standalone.nodes": _OF_PEOPLE,
    "standalone.nodes_file": _OF_PEOPLE,
    "standalone.consul": _OF_PEOPLE,
    "standalone.resources": _OF_PEOPLE,
    SECRETS: _OF_PROCESSES,  # to which hosts and commands each secret is released
    "vault.key_file": KeyUses(_LIVE, _UNUSED, _LIVE),
    "vault.key": KeyUses(_LIVE, _UNUSED, _LIVE),
    "console.theme": _OF_PEOPLE,
    "console.keys": _OF_PEOPLE,
    "console.clusters": _OF_PEOPLE,
}


class Changes(msgspec.Struct, frozen=True):
    """What follows from a new configuration."""

    config: Config  # the one that is in force from now on
    uses: frozenset[KeyUse]  # of the keys that differ
    report: ReloadReport


def changes(old: Config, new: Config, kind: NodeKind) -> Changes:
    """Compare two valid configurations. `old` is the one in force."""
    changed: list[str] = []
    waiting: list[str] = []
    uses: set[KeyUse] = set()
    hidden = hidden_keys(old) | hidden_keys(new)
    config = new
    for key in (*all_keys(), SECRETS):
        before, after = _value(old, key), _value(new, key)
        use = KEY_USES[key].of(kind)
        if before == after or use is KeyUse.UNUSED:
            continue
        uses.add(use)
        if use is KeyUse.RESTART:
            config = _with_value(config, key.split("."), before)
            waiting.append(f"{key} needs a restart; still the old value")
            continue
        changed.extend(diff_lines(key, before, after, hidden=_is_hidden(key, hidden)))
    return Changes(config, frozenset(uses), ReloadReport(_limited(changed), _limited(waiting)))


def _is_hidden(key: str, hidden: Collection[str]) -> bool:
    """Whether a key, or for a section one of its keys, may hold a secret."""
    return any(other == key or other.startswith(f"{key}.") for other in hidden)


def diff_lines(key: str, before: Any, after: Any, *, hidden: bool = False) -> list[str]:
    """Return the lines of one key; the section of secrets has a line for each secret."""
    if hidden or key in HIDDEN:
        return [f"{key}: {_hidden(before)} → {_hidden(after)}"]
    if key != SECRETS:
        return [f"{key}: {_plain(before)} → {_plain(after)}"]
    names = sorted(before.keys() | after.keys())
    return [
        f"{SECRETS}.{name}: {_released(before.get(name))} → {_released(after.get(name))}"
        for name in names
        if before.get(name) != after.get(name)
    ]


def _released(secret: Any) -> str:
    """Return to what a secret is released; its value is not part of the configuration."""
    return "(none)" if secret is None else _plain([*secret.hosts, *secret.commands])


def _hidden(value: Any) -> str:
    return "(hidden)" if value else "(empty)"


def _plain(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name} = {entry}' for name, entry in value.items())}}}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if value != "" else "(empty)"


def _limited(lines: list[str]) -> list[str]:
    if len(lines) > LINES_MOST:
        more = f"… and {len(lines) - LINES_MOST + 1} more"
        lines = [*lines[: LINES_MOST - 1], more]
    return [cut(line) for line in lines]


def _value(config: Config, key: str) -> Any:
    value: Any = config
    for step in key.split("."):
        value = getattr(value, step)
    return value


def _with_value(section: Any, steps: list[str], value: Any) -> Any:
    """Return a section with another value; sections may have sections within."""
    step, *later = steps
    if later:
        value = _with_value(getattr(section, step), later, value)
    return msgspec.structs.replace(section, **{step: value})


def line_of(text: str, message: str) -> int:
    """Return the number of the line of a file whose key an error message names; 0: none.

    The errors of `config.resolve` name the key; people look for the line.
    """
    section, best, number = "", "", 0
    for count, line in enumerate(text.splitlines(), 1):
        bare = line.partition("#")[0].strip()
        if bare.startswith("[") and bare.endswith("]"):
            section = bare.strip("[]").strip()
            key = section
        elif "=" in bare:
            name = bare.partition("=")[0].strip().strip("\"'")
            key = f"{section}.{name}" if section else name
        else:
            continue
        if len(key) > len(best) and _names(message, key):
            best, number = key, count
    return number


def _names(message: str, key: str) -> bool:
    """Whether a message has the key as a whole word."""
    before, match, after = message.partition(key)
    whole_start = not before or not (before[-1].isalnum() or before[-1] in "._-/")
    rest = after.removeprefix(".")  # the end of a sentence, or a longer key
    whole_end = not rest or not (rest[0].isalnum() or rest[0] in "_-")
    return bool(match) and whole_start and whole_end
