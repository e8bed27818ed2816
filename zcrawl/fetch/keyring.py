"""Decide which secrets and files of a worker a job may use, and for which hosts.

A worker has one `Keyring`, made by `roles.worker_main` from its configuration and its environment;
`for_run` returns the secrets of one run. Pure: the environment comes in. The rules:

- `[secrets.NAME] hosts` names the hosts that a secret may go to. On a cluster, a secret without
  hosts is never sent: otherwise anybody who may submit a job could send it to their own host.
- The user who runs `crawl` or `up` set the secrets themselves. Secrets that the configuration does
  not mention go to the hosts of the job's seeds, as typed or as in the job file. If a proxy of the
  job has such a secret in its credentials, it goes to that proxy too. The target of a redirect is
  not a seed, and neither is plain HTTP of a host that was named with https. A secret of
  `fetch.auth` goes to the hosts of its entries too.
- A proxy that a job names can read plain HTTP, and unverified TLS. So on a cluster a
  secret goes through such a proxy only over verified TLS, or if the proxy is one of its hosts too.
- A secret goes into the environment of a command only if the configuration names the command
  (`[secrets.NAME] commands`). The user who runs `crawl` or `up` may give secrets that the
  configuration does not mention to every command that it allows.
- A worker of a cluster opens the certificates that a job names only below `worker.tls_files`. Only
  names are compared and no file is opened, so the answer reveals nothing about other files.

Invariant: this module returns a value only for a URL that may get it (`Sealed.text_for`), for a
command that may get it, inside the credentials of a proxy that may get it, or inside a `Redactor`,
which removes it from texts.

Secrets of a job: `${NAME}` in its file, their values in the worker's environment; and
`${secret:NAME}`, which the leader sends with the run (`dispatch.secret_book`), never the
environment. A stored secret goes only to its own hosts and commands, also for the owner.

Only variables that begin with ZCRAWL_SECRET_ are read, so a job cannot send other variables of the
worker. The stored job, its views and the logs contain only the names.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec

from zcrawl.errors import BadUrl, FetchError, JobError
from zcrawl.fetch.host_patterns import HostPattern, parse_pattern, port_of
from zcrawl.fetch.policy import fetch_error
from zcrawl.fetch.ports import TlsFiles
from zcrawl.frontier.url import canonicalize, host_name_of, netloc_of, origin_of
from zcrawl.mesh.messages import RunSecret
from zcrawl.model.reasons.failure import SECRET_NOT_RELEASED
from zcrawl.model.reasons.usage import BAD_SECRET, NO_SECRET, PATH_NOT_ALLOWED
from zcrawl.model.spec import JobSpec
from zcrawl.submit.prefixes import place_of, prefix_above, prefix_of
from zcrawl.submit.shell_rights import ShellRights, secret_patterns
from zcrawl.text.commands import CommandPattern
from zcrawl.text.patterns import lazy_pattern
from zcrawl.text.redact import Redactor

PREFIX: Final = "ZCRAWL_SECRET_"
STORED: Final = "secret:"  # of names of stored secrets, which the leader sends with a run
_STORED: Final = PREFIX + STORED  # a variable of this name is never read
REFERENCE: Final = lazy_pattern(r"\$\{((?:secret:)?[A-Za-z0-9_]+)\}")


def names_in(text: str) -> list[str]:
    """Return the names of the secrets in a text."""
    return REFERENCE.findall(text) if "${" in text else []


def expand(text: str, environ: Mapping[str, str]) -> str:
    """Replace every `${NAME}` in `text` by ZCRAWL_SECRET_NAME; JobError if one is not set."""

    def value(match: re.Match[str]) -> str:
        name = PREFIX + match[1]
        if name not in environ:
            if match[1].startswith(STORED):
                raise JobError(
                    f"the stored secret {match[1].removeprefix(STORED)} did not come with the run",
                    code=NO_SECRET,
                )
            why = ""
            if match[1].startswith("URL_"):
                why = (
                    ": it was part of a URL, and is not stored; set it, or crawl again with the URL"
                )
            raise JobError(f"{name} is not set in the worker's environment{why}", code=NO_SECRET)
        return environ[name]

    return REFERENCE.sub(value, text) if "${" in text else text


_PLAIN_PORT: Final = 80
_TLS_PORT: Final = 443
_MAX_REMEMBERED: Final = 10_000  # origins


class JobRights(msgspec.Struct, frozen=True):
    """The rights of jobs in a worker's configuration. `owner`: the jobs are those of its own
    user."""

    owner: bool = False
    tls_files: tuple[str, ...] = ()
    secrets: dict[str, tuple[str, ...]] = {}  # name → hosts
    shell: ShellRights = ShellRights()  # commands that jobs may run
    commands: dict[str, tuple[str, ...]] = {}  # name of a secret → commands that may get it


class Keyring:
    def __init__(self, rights: JobRights | None = None, environ: Mapping[str, str] | None = None):
        rights = rights or JobRights()
        self.environ = {
            name: value for name, value in (environ or {}).items() if not name.startswith(_STORED)
        }
        self.owner = rights.owner
        self._tls_files = tuple(prefix_of(text) for text in rights.tls_files)
        self._hosts = {
            name: tuple(parse_pattern(host) for host in hosts)
            for name, hosts in rights.secrets.items()
        }
        self.shell = rights.shell
        self._commands = secret_patterns(rights.commands)

    def for_run(self, spec: JobSpec, stored: Mapping[str, RunSecret] | None = None) -> RunSecrets:
        """Return the secrets that a run of this job may use. `stored`: those that came with it."""
        environ, released, commands = self.environ, self._hosts, self._commands
        if stored:
            environ = {**environ, **{_STORED + name: each.value for name, each in stored.items()}}
            released = {
                **released,
                **{
                    STORED + name: tuple(parse_pattern(host) for host in each.hosts)
                    for name, each in stored.items()
                },
            }
            patterns = {STORED + name: each.commands for name, each in stored.items()}
            commands = {**commands, **secret_patterns(patterns)}
        if self.owner:
            seeds, auth = spec.own_seeds, _auth_hosts(spec)
            return RunSecrets(environ, released, seeds, auth=auth, commands=commands)
        fetch = spec.fetch
        proxies = tuple(_address_of(proxy) for proxy in fetch.proxies)
        return RunSecrets(environ, released, None, proxies, fetch.verify_tls, commands=commands)

    def check_tls(self, files: TlsFiles) -> TlsFiles:
        """Return the files if a job may use them; otherwise JobError. Opens no file."""
        if self.owner:
            return files
        for name in (files.ca, files.cert, files.key):
            if name and not self._may_read(name):
                raise JobError(
                    f"fetch.ca_file, client_cert, client_key: {name[:200]!r} is not in a folder "
                    "that worker.tls_files in this worker's configuration allows",
                    code=PATH_NOT_ALLOWED,
                )
        return files

    def _may_read(self, name: str) -> bool:
        try:
            return prefix_above(place_of(name), self._tls_files) is not None
        except ValueError:
            return False


class RunSecrets:
    """The secrets of one run.

    `seeds`: hosts that get secrets without configured hosts; None: no host gets them. `auth`: more
    hosts for such secrets, by name of the secret. `proxies`: URLs of proxies that can read requests
    without TLS, and also with TLS if it is not `verified`. `commands`: name → commands that may get
    it in their environment."""

    def __init__(
        self,
        environ: Mapping[str, str],
        hosts: Mapping[str, tuple[HostPattern, ...]],
        seeds: Iterable[str] | None,
        proxies: tuple[str, ...] = (),
        verified: bool = True,
        auth: Mapping[str, tuple[HostPattern, ...]] | None = None,
        commands: Mapping[str, tuple[CommandPattern, ...]] | None = None,
    ) -> None:
        self._commands = commands or {}
        self._auth = auth or {}
        self._proxies, self._verified = proxies, verified
        self._environ = environ
        self._hosts = hosts
        self._owner = seeds is not None
        self._seeds = frozenset(origin for seed in seeds or () for origin in _origins(seed))

    def missing_secrets(self, text: str, url: str) -> frozenset[str]:
        """Return the names of the secrets in `text` that the host of this URL may not get."""
        encrypted = self._verified and url.startswith("https:")
        recipients = (url,) if encrypted else (url, *self._proxies)
        return frozenset(
            name
            for name in names_in(text)
            if not all(self._is_released(name, recipient) for recipient in recipients)
        )

    def _is_released(self, name: str, url: str) -> bool:
        hosts = self._hosts.get(name)
        if hosts is None and name.startswith(STORED):
            return False
        if hosts is None:
            hosts = self._auth.get(name, ())
            if _full_origin(url) in self._seeds:
                return True
        return any(pattern.has(url) for pattern in hosts)

    def for_command(self, text: str, argv: Sequence[str]) -> str:
        """Return the text with its secrets, for the environment of a command; FetchError if the
        command may not get one of them, JobError if one is not set."""
        for name in names_in(text):
            patterns = self._commands.get(name, ())
            free = self._owner and name not in self._hosts
            if not free and not any(pattern.allows(argv) for pattern in patterns):
                raise fetch_error(
                    SECRET_NOT_RELEASED,
                    f"the command {argv[0]} may not get the secret {name}; if it should, put its "
                    f"command line into commands of [secrets.{name}] in the workers' configuration",
                )
        return expand(text, self._environ)

    def redactor(self, texts: Iterable[str], basic: Iterable[str] = ()) -> Redactor:
        """Return what removes the values of the secrets in these texts from others; `basic`: texts
        that are sent in base64 as a whole."""
        names = {name for text in texts for name in names_in(text)}
        values = {name: self._environ.get(PREFIX + name, "") for name in sorted(names)}
        for text in basic:
            values[text] = base64.b64encode(expand(text, self._environ).encode()).decode()
        return Redactor(values)

    def sealed(self, template: str, *texts: str) -> Sealed:
        """Return `template` with a `{}` for each text; JobError if a secret in them is not set."""
        return Sealed(self, template, texts, tuple(expand(text, self._environ) for text in texts))

    def proxy(self, text: str) -> str:
        """Return the URL of a proxy with its credentials; JobError if it may not get them."""
        scheme, _, rest = text.partition("://")
        user, at, address = rest.rpartition("@")
        url = _address_of(text)
        # A job names its proxies as it names its seeds, so its owner's secrets may go to both.
        names = {
            name
            for name in names_in(user)
            if not self._is_released(name, url) and (not self._owner or name in self._hosts)
        }
        if names:
            raise JobError(_release_advice(names, url), code=SECRET_NOT_RELEASED)
        whole = f"{scheme}://{expand(user, self._environ)}{at}{address}"
        if urlsplit(whole).netloc.rpartition("@")[2] != address.rstrip("/"):
            raise JobError(
                f"fetch.proxies: a secret for {address} has a character that ends the user part of "
                "a URL; write it as %XX",
                code=BAD_SECRET,
            )
        return whole


class Sealed:
    """A text with secrets, which is sent only to hosts that may get them."""

    def __init__(
        self, secrets: RunSecrets, template: str, texts: tuple[str, ...], values: tuple[str, ...]
    ) -> None:
        self._secrets, self.template = secrets, template
        self._texts, self._values = texts, values

    def missing_secrets(self, url: str) -> frozenset[str]:
        """Return the names of the secrets that this URL may not get."""
        return frozenset().union(
            *(self._secrets.missing_secrets(text, url) for text in self._texts)
        )

    def values_for(self, url: str) -> tuple[str, ...] | None:
        """Return the texts with their secrets; None if this URL may not get one of them."""
        return None if self.missing_secrets(url) else self._values

    def text_for(self, url: str) -> str | None:
        values = self.values_for(url)
        return None if values is None else self.template.format(*values)


_NO_NAMES: Final[frozenset[str]] = frozenset()


class HeaderSecrets:
    """The headers of a job. Those with secrets are sent only to hosts that may get them."""

    def __init__(self, written: Mapping[str, str], secrets: RunSecrets) -> None:
        self.plain = {name: text for name, text in written.items() if not names_in(text)}
        self._sealed = {
            name: secrets.sealed("{}", text) for name, text in written.items() if names_in(text)
        }
        self._for_origin: dict[str, dict[str, str]] = {}

    def for_url(self, url: str) -> dict[str, str]:
        """Return the headers for this URL, without those whose secrets it may not get."""
        if not self._sealed:
            return self.plain
        origin = origin_of(url)
        headers = self._for_origin.get(origin)
        if headers is None:
            if len(self._for_origin) >= _MAX_REMEMBERED:
                self._for_origin.clear()
            texts = {
                name: sealed_header.text_for(url) for name, sealed_header in self._sealed.items()
            }
            released = {name: text for name, text in texts.items() if text is not None}
            headers = self._for_origin[origin] = {**self.plain, **released}
        return headers

    def missing_secrets(self, url: str) -> frozenset[str]:
        if not self._sealed:
            return _NO_NAMES
        return _NO_NAMES.union(
            *(sealed_header.missing_secrets(url) for sealed_header in self._sealed.values())
        )


def not_released(names: Iterable[str], url: str) -> FetchError:
    """Return the failure of a request that needs secrets which its host may not get."""
    return fetch_error(SECRET_NOT_RELEASED, _release_advice(names, url))


def _release_advice(names: Iterable[str], url: str) -> str:
    host, first = netloc_of(url), sorted(names)
    return (
        f"{host}, or a proxy on the way, may not get the secret {', '.join(first)}; if it should, "
        f"put {host!r} into hosts of [secrets.{first[0]}] in the workers' configuration"
    )


def _auth_hosts(spec: JobSpec) -> dict[str, tuple[HostPattern, ...]]:
    """Return the secrets of `fetch.auth`, with the hosts of their entries."""
    hosts: dict[str, tuple[HostPattern, ...]] = {}
    for entry in spec.fetch.auth:
        for name in names_in(entry.user + entry.password + entry.bearer):
            hosts[name] = (*hosts.get(name, ()), parse_pattern(entry.host))
    return hosts


def _address_of(proxy: str) -> str:
    """Return the URL of a proxy without credentials; JobError if it has no address."""
    address = proxy.partition("://")[2].rpartition("@")[2].rstrip("/")
    try:
        return canonicalize(f"http://{address}/")
    except BadUrl:
        raise JobError(f"fetch.proxies: {address[:80]!r} is not a proxy's address") from None


def _full_origin(canonical_url: str) -> str:
    """Return scheme, name and port, also if the port is the default of the scheme."""
    return f"{canonical_url.partition(':')[0]}://{netloc_of(canonical_url)}"


def _origins(seed: str) -> tuple[str, ...]:
    """Return the origins that get the secrets of a seed: its own, and for plain HTTP also https of
    the same host, because sites redirect there. Never plain HTTP for an https seed, because others
    on the way can read it."""
    try:
        url = canonicalize(seed)
    except BadUrl:
        return ()  # it was refused when the job was submitted
    if url.startswith("https:"):
        return (_full_origin(url),)
    port = _TLS_PORT if port_of(url) == _PLAIN_PORT else port_of(url)
    return (_full_origin(url), f"https://{host_name_of(url)}:{port}")
