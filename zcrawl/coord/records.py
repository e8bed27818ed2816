"""Write and read the entries in Consul.

Called by the Consul backend, its fake and the election machine. Pure. Everybody with
a token can write there, so entries that cannot be read are left out or described, never an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from zcrawl.coord.calls import CatalogueRow, LockEntry
from zcrawl.coord.ports import Condition, Health, LeaderSeen, Member, MemberRole, Sighting
from zcrawl.errors import ConfigError
from zcrawl.mesh.address import parse_endpoint
from zcrawl.mesh.ports import Endpoints
from zcrawl.text.patterns import lazy_pattern

CHECK_TTL_S: Final = 3  # a silent member is dead after this; its session dies with it
SESSION_TTL_S: Final = 10  # Consul's least, and it acts at twice its value: the second net
REMOVE_DEAD_AFTER: Final = "1m"  # Consul's least
LEADER_TAG: Final = "leader"
FOLLOWER_TAG: Final = "follower"
NO_SESSION: Final = ""
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

# Consul's limits for meta: 64 pairs, 128 letters a key, 512 a value.
META_VALUE_MAX: Final = 512
META_EXTRA_MAX: Final = 40
META_KEY_BAD: Final = lazy_pattern(r"[^A-Za-z0-9_-]")
SHOWN_VALUE: Final = 60
# fmt: off
OWN_META: Final = frozenset({
    "id", "cluster", "version", "host", "pid", "incarnation", "slots", "control", "reports",
    "events", "curve",
})
# fmt: on


class LockValue(msgspec.Struct, frozen=True):
    """The lock key's value. `since` is for people."""

    id: str
    endpoints: Endpoints | None
    since: str


def service_name(role: MemberRole) -> str:
    return f"zcrawl-{role.value}"


def service_id(member: Member) -> str:
    parts = (member.role.value, member.cluster, member.id)
    return ":".join(("zcrawl", *(quote(part, safe="") for part in parts)))


def check_id(member: Member) -> str:
    return f"service:{service_id(member)}"


def lock_key(cluster: str) -> str:
    return f"zcrawl/{cluster}/leader"


def tags_of(member: Member, leads: bool, condition: Condition) -> list[str]:
    place = [LEADER_TAG if leads else FOLLOWER_TAG] if member.role is MemberRole.MASTER else []
    return [member.cluster, *place, *condition.tags]


def meta_of(member: Member, condition: Condition) -> dict[str, str]:
    meta = {
        "id": member.id,
        "cluster": member.cluster,
        "version": member.version,
        "host": member.hostname,
        "pid": str(member.pid),
        "incarnation": str(member.incarnation),
    }
    if member.slots:
        meta["slots"] = str(member.slots)
    if member.endpoints is not None:
        meta["control"] = member.endpoints.control
        meta["reports"] = member.endpoints.reports
        meta["events"] = member.endpoints.events
    if member.curve_key:
        meta["curve"] = member.curve_key
    for key, value in sorted(condition.meta.items())[:META_EXTRA_MAX]:
        meta.setdefault(META_KEY_BAD.sub("_", key)[:128], value[:META_VALUE_MAX])
    return meta


def reached_at(member: Member) -> tuple[str | None, int | None]:
    """Return address and port for the catalogue; empty for a worker or a socket file."""
    try:
        address = urlsplit(member.endpoints.control if member.endpoints else "")
        return address.hostname, address.port
    except ValueError:
        return None, None


def check_of(member: Member, condition: Condition) -> dict[str, Any]:
    return {
        "CheckID": check_id(member),
        "Name": f"{service_name(member.role)} {member.id}: its event loop turns",
        # Consul writes a changed output to its servers up to five minutes later, changed notes
        # at once: so the line for people is in both.
        "Notes": condition.note,
        "TTL": f"{CHECK_TTL_S}s",
        "Status": "passing",
        "DeregisterCriticalServiceAfter": REMOVE_DEAD_AFTER,
    }


# ------------------------------------------------------------ reading


def read_row(role: MemberRole, cluster: str, row: Any) -> CatalogueRow | None:
    """Read one entry of /v1/health/service; None for other clusters and foreign entries."""
    try:
        service, meta = row["Service"], row["Service"]["Meta"]
        if meta["cluster"] != cluster:
            return None
        tags: list[str] = service["Tags"] or []
        own = [check for check in row["Checks"] if check["ServiceID"] == service["ID"]]
        critical = any(check["Status"] == "critical" for check in row["Checks"])
        note = next((check["Notes"] or check["Output"] for check in own), "")
        sighting = Sighting(
            _read_member(role, meta),
            Health.CRITICAL if critical else Health.PASSING,
            leads=LEADER_TAG in tags,
            condition=Condition(
                note,
                tuple(tag for tag in tags if tag not in (LEADER_TAG, FOLLOWER_TAG, cluster)),
                {key: value for key, value in meta.items() if key not in OWN_META},
            ),
        )
        return CatalogueRow(row["Node"]["Node"], service["ID"], sighting)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None  # somebody else's service under our name: not a member


def _read_member(role: MemberRole, meta: Mapping[str, str]) -> Member:
    return Member(
        role,
        meta["id"],
        meta["cluster"],
        meta["version"],
        meta["host"],
        int(meta["pid"]),
        int(meta["incarnation"]),
        int(meta.get("slots", "0")),
        _read_endpoints(meta),
        meta.get("curve", ""),
    )


def _read_endpoints(meta: Mapping[str, str]) -> Endpoints | None:
    """Return the endpoints of a master; None if nobody can connect to them."""
    if "control" not in meta:
        return None
    texts = [meta[name] for name in ("control", "reports", "events")]
    try:
        addresses = [parse_endpoint(text) for text in texts]
    except ConfigError:
        return None
    if any(address is not None and address.is_wildcard for address in addresses):
        return None
    return Endpoints(meta["id"], *texts)


def write_lock_value(member: Member, since: str) -> bytes:
    return msgspec.json.encode(LockValue(member.id, member.endpoints, since))


def is_value_of(me: Member, value: bytes) -> bool:
    try:
        read = msgspec.json.decode(value, type=LockValue)
    except UNREADABLE:
        return False
    return (read.id, read.endpoints) == (me.id, me.endpoints)


def read_lock(me: Member, my_session: str, entry: LockEntry | None) -> LeaderSeen:
    """Return the holder of the lock, with a detail where it is not clear."""
    if entry is None or not entry.session:
        return LeaderSeen(None, entry.lock_index if entry else 0)
    if entry.session == my_session:
        return LeaderSeen(me.id, entry.lock_index, me.endpoints)
    key = lock_key(me.cluster)
    try:
        value = msgspec.json.decode(entry.value, type=LockValue)
    except UNREADABLE:
        shown = entry.value[:SHOWN_VALUE].decode(errors="replace")
        return LeaderSeen(
            None,
            entry.lock_index,
            detail=f"the lock {key} is held by session {entry.session}, which is not a"
            f" zcrawl master; its value is {shown!r}",
        )
    detail = ""
    if value.id == me.id:
        detail = (
            f"the lock {key} is held by another process named {me.id}, "
            "or by an earlier process of this node"
        )
    return LeaderSeen(value.id, entry.lock_index, value.endpoints, detail)
