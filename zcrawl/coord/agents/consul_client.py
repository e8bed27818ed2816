"""Calls to Consul, one at a time, each with an answer that the election machine understands.

py-consul does the calls; where it cannot (a transaction with a token, a conflict as an answer) its
HTTP layer is used directly. A client belongs to one thread.
"""

from __future__ import annotations

import base64
import datetime
import json
import ssl
from pathlib import Path
from typing import Any, Final, assert_never
from urllib.parse import urlsplit

import consul
import msgspec
import requests

from zcrawl.coord import calls as c
from zcrawl.coord.ports import Condition, Member, MemberRole
from zcrawl.coord.records import (
    SESSION_TTL_S,
    check_id,
    check_of,
    lock_key,
    meta_of,
    reached_at,
    read_row,
    service_id,
    service_name,
    tags_of,
    write_lock_value,
)
from zcrawl.errors import ConfigError

CALL_TIMEOUT_S: Final = 1.5  # two calls between two passes still fit into the check's TTL
# Consul 1.8 answers 500 where later versions answer 404.
UNKNOWN_CHECK: Final = ("does not have associated TTL", "Unknown check")
INVALID_SESSION: Final = "invalid session"
MAX_REASON: Final = 300
CUT_HINT: Final = (
    "it restarts, or this address has more connections than its limits.http_max_conns_per_client"
    " (200 unless set; a node needs up to 4)"
)


class ConsulSettings(msgspec.Struct, frozen=True):
    """Address of Consul, and our access to it."""

    address: str = "http://127.0.0.1:8500"
    token: str = ""  # empty: CONSUL_HTTP_TOKEN, if set
    datacenter: str = ""  # empty: the agent's
    ca_file: str = ""  # for https; empty: the system's
    cert_file: str = ""  # ours, for an agent that verifies its clients
    key_file: str = ""  # of cert_file; empty: the key is in the same file

    @property
    def certificate(self) -> str | tuple[str, str] | None:
        """What `requests` shows to the agent."""
        return (self.cert_file, self.key_file) if self.key_file else self.cert_file or None


class ConsulClient:
    def __init__(
        self, settings: ConsulSettings, me: Member, timeout_s: float = CALL_TIMEOUT_S
    ) -> None:
        self._me = me
        self._settings = settings
        host, port, scheme = _parts(settings.address)
        client = consul.Consul(
            host=host,
            port=port,
            scheme=scheme,
            dc=settings.datacenter or None,
            verify=settings.ca_file or True,
            cert=settings.certificate,
            connections_timeout=timeout_s,
        )
        # py-consul prefers the environment's token to the one it is given.
        client.token = settings.token or client.token
        # Neither a proxy for the web nor a .netrc is meant for Consul.
        client.http.session.trust_env = False
        self._consul: Any = client
        self._led_since = ""  # kept while the lock is: acquiring again changes nothing

    # ------------------------------------------------------------ calls

    def perform(self, call: c.Call) -> c.CallAnswer:
        try:
            return self._perform(call)
        except Exception as error:
            trouble, reason = self.explain(error)
            return c.CallFailed(call, trouble, reason)

    def _perform(self, call: c.Call) -> c.CallAnswer:
        api, me = self._consul, self._me
        match call:
            case c.Register(leads, condition):
                self._register(leads, condition)
            case c.PassCheck(note):
                if not api.agent.check.ttl_pass(check_id(me), notes=note or None):
                    return c.CallFailed(call, c.Trouble.GONE, "Consul does not know our check")
            case c.CreateSession():
                session = api.session.create(
                    name=f"zcrawl {me.cluster} {me.id}",
                    checks=["serfHealth", check_id(me)],
                    lock_delay=0,
                    behavior="release",
                    ttl=SESSION_TTL_S,
                )
                return c.SessionMade(session)
            case c.RenewSession(session):
                api.session.renew(session)
            case c.AcquireLock(session):
                return self._acquire(session)
            case c.ReleaseLock(session):
                # Keeps the value: it says who led last. False, not ours any more, is as good.
                value = write_lock_value(me, self._led_since)
                self._led_since = ""
                api.kv.put(lock_key(me.cluster), value, release=session)
            case c.DestroySession(session):
                api.session.destroy(session)
            case c.Deregister():
                api.agent.service.deregister(service_id(me))
            case c.DeregisterDead(node, dead):
                api.catalog.deregister(node, service_id=dead)
            case _:
                assert_never(call)
        return c.CallDone(call)

    def _register(self, leads: bool, condition: Condition) -> None:
        me = self._me
        host, port = reached_at(me)
        self._consul.agent.service.register(
            service_name(me.role),
            service_id=service_id(me),
            address=host,
            port=port,
            tags=tags_of(me, leads, condition),
            meta=meta_of(me, condition),
            check=check_of(me, condition),
        )

    def _acquire(self, session: str) -> c.CallAnswer:
        """Acquire the lock by a transaction, which also returns LockIndex."""
        key = lock_key(self._me.cluster)
        since, self._led_since = self._led_since or _utc_now(), ""
        value = base64.b64encode(write_lock_value(self._me, since)).decode()
        operation = {"Verb": "lock", "Key": key, "Value": value, "Session": session}
        code, body = self._put("/v1/txn", json.dumps([{"KV": operation}]))
        if code == 200:
            self._led_since = since
            return c.LockWon(session, int(json.loads(body)["Results"][0]["KV"]["LockIndex"]))
        if code == 409 and INVALID_SESSION in body:
            return c.CallFailed(c.AcquireLock(session), c.Trouble.GONE, body[:MAX_REASON])
        if code == 409:
            return c.LockRefused(session)
        raise _Unexpected(code, body)

    def _put(self, path: str, data: str) -> tuple[int, str]:
        api = self._consul
        dc = self._settings.datacenter
        answer = api.http.put(
            lambda response: response,
            path,
            params=[("dc", dc)] if dc else None,
            data=data,
            headers=api.prepare_headers(None),
        )
        return answer.code, answer.body

    # ------------------------------------------------------------ readings

    def read_lock(self, index: str | None, wait_s: int) -> tuple[str, c.LockRead]:
        """Block until the key changes, or until the wait is over."""
        api = self._consul
        index, pair = api.kv.get(lock_key(self._me.cluster), index=index, wait=f"{wait_s}s")
        if pair is None:
            return index, c.LockRead(None)
        entry = c.LockEntry(pair.get("Session") or "", pair["LockIndex"], pair["Value"] or b"")
        return index, c.LockRead(entry)

    def read_members(
        self, role: MemberRole, index: str | None, wait_s: int
    ) -> tuple[str, c.MembersRead]:
        index, rows = self._consul.health.service(
            service_name(role), index=index, wait=f"{wait_s}s"
        )
        read = [read_row(role, self._me.cluster, row) for row in rows]
        return index, c.MembersRead(role, tuple(row for row in read if row is not None))

    # ------------------------------------------------------------ failures

    def explain(self, error: Exception) -> tuple[c.Trouble, str]:
        """Return what an error of a call means; no error leaves this class."""
        where, text = self._settings.address, str(error)[:MAX_REASON]
        match error:
            case requests.exceptions.SSLError():
                return c.Trouble.AWAY, f"{where}: TLS: {text}; {_tls_remedy(str(error))}"
            case requests.exceptions.Timeout():
                return c.Trouble.AWAY, f"{where} does not answer in time"
            case requests.exceptions.ConnectionError() if "alert" in str(error):
                # TLS 1.3: a refused certificate is reported when the answer is read.
                return c.Trouble.AWAY, f"{where}: TLS: {text}; {_tls_remedy(str(error))}"
            case requests.exceptions.ConnectionError() if _was_cut(error):
                # Or the alert is lost because the connection is closed at the same moment.
                hint = f"; or {_tls_remedy('')}" if where.startswith("https") else ""
                return c.Trouble.AWAY, f"{where} cut the connection: {CUT_HINT}{hint}"
            case requests.exceptions.ConnectionError():
                return c.Trouble.AWAY, f"{where} cannot be reached: {_innermost(error)}"
            case consul.exceptions.ACLPermissionDenied() | consul.exceptions.ACLDisabled():
                return c.Trouble.DENIED, self._denied(text)
            case _Unexpected(code=401 | 403):
                return c.Trouble.DENIED, self._denied(text)
            case consul.exceptions.NotFound():
                return c.Trouble.GONE, f"{where}: {text}"
            case consul.exceptions.BadRequest() | consul.exceptions.ClientError():
                return c.Trouble.REFUSED, f"{where}: {text}"
        if any(sign in text for sign in UNKNOWN_CHECK):
            return c.Trouble.GONE, f"{where}: {text}"
        if "Check '" in text or "Missing check" in text or "Missing node" in text:
            return c.Trouble.REFUSED, f"{where}: {text}"
        # 5xx, "No cluster leader", an answer that is not JSON: Consul does not work.
        return c.Trouble.AWAY, f"{where}: {text or type(error).__name__}"

    def _denied(self, text: str) -> str:
        token = self._consul.token
        which = f"token {token[:4]}…" if token else "no token is configured, and the anonymous one"
        cluster = self._me.cluster
        return (
            f"{self._settings.address} denies access ({text.strip() or 'no reason'}): {which} lacks"
            f' a right; needed are service_prefix "zcrawl-" write, key_prefix "zcrawl/{cluster}/"'
            ' write, session_prefix "" write and node_prefix "" read'
        )


class _Unexpected(Exception):
    """A status that no call expects; explained like py-consul's own errors."""

    def __init__(self, code: int, body: str) -> None:
        super().__init__(f"{code} {body[:MAX_REASON]}")
        self.code = code


def _parts(address: str) -> tuple[str, int, str]:
    parts = urlsplit(address if "//" in address else f"http://{address}")
    try:
        port = parts.port
    except ValueError:
        port = 0
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ConfigError(f"Consul's address {address!r} is not http(s)://HOST:PORT")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return host, port or (8501 if parts.scheme == "https" else 8500), parts.scheme


def _tls_remedy(text: str) -> str:
    """Return which key of the configuration to look at."""
    if "CERTIFICATE_VERIFY_FAILED" in text:
        if "has expired" in text:
            return "the agent's certificate has expired: renew it there"
        if "match" in text or "not valid for" in text:
            return "the agent's certificate is not for this name: change consul.address"
        return "consul.ca_file must have the authority that signed the agent's certificate"
    if "WRONG_VERSION_NUMBER" in text:
        return "this port has no TLS: change consul.address (https is 8501 in most agents)"
    return (
        "does the agent refuse our certificate? If its verify_incoming is on, consul.cert_file and "
        "consul.key_file must name one that its ca_file has signed"
    )


def check_tls(settings: ConsulSettings) -> None:
    """Raise ConfigError for files that no connection could use, naming the key.

    Without this check, an address without https would silently be used without encryption, and a
    key with a passphrase would stop the process at a prompt."""
    files = {
        "consul.ca_file": settings.ca_file,
        "consul.cert_file": settings.cert_file,
        "consul.key_file": settings.key_file,
    }
    keys = [key for key, name in files.items() if name]
    if not keys:
        return
    if _parts(settings.address)[2] != "https":
        raise ConfigError(
            f"{keys[0]} is set, but consul.address {settings.address!r} is not https: the "
            "connection would not be encrypted; write https://HOST:8501"
        )
    if settings.key_file and not settings.cert_file:
        raise ConfigError("consul.key_file needs consul.cert_file: the certificate of this key")
    for key in keys:
        try:
            Path(files[key]).read_bytes()
        except OSError as error:
            raise ConfigError(f"{key}: {files[key]} cannot be read: {error.strerror}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        key = "consul.ca_file"
        if settings.ca_file:
            context.load_verify_locations(settings.ca_file)
        key = "consul.cert_file"
        if settings.cert_file:
            context.load_cert_chain(settings.cert_file, settings.key_file or None, lambda: "")
    except (OSError, ValueError) as error:  # ValueError: an empty passphrase
        raise ConfigError(
            f"{key}: {files[key]} is not a usable PEM file, or consul.key_file does not belong to "
            f"it or has a passphrase: {error}"
        ) from None


def _was_cut(error: requests.exceptions.ConnectionError) -> bool:
    """Return whether the connection was accepted and closed without an answer."""
    (inner,) = error.args[:1] or (None,)
    causes = getattr(inner, "args", ())
    return any(isinstance(cause, ConnectionResetError | BrokenPipeError) for cause in causes)


def _innermost(error: BaseException) -> str:
    """Return the text of the innermost cause: requests wraps urllib3, which wraps it."""
    text = str(error)
    return text.rpartition(": ")[2].rstrip("')\"") if ": " in text else text[:MAX_REASON]


def _utc_now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
