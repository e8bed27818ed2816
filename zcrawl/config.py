"""The configuration of zcrawl on this machine.

Called by the CLI, which reads the file. Pure. Each value comes from the first of these that has
it: a flag, an environment variable ZCRAWL_SECTION__KEY, the TOML file, the default; `Resolved`
remembers which, and `zcrawl config show` prints it.
"""

import math
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from zcrawl.errors import ConfigError, JobError
from zcrawl.model.reasons.usage import BAD_TOML, UNKNOWN_KEY
from zcrawl.model.spec import ScheduleDefaults
from zcrawl.submit import keys
from zcrawl.submit.labels import label_error
from zcrawl.text.patterns import lazy_pattern

_NAME: Final = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")  # a part of Consul keys
_SECRET_NAME: Final = lazy_pattern(r"[A-Za-z0-9_]+")  # a part of a variable's name
ENV_PREFIX: Final = "ZCRAWL_"
# Variables with the prefix that are not keys: a switch of the CLI, and click's completion.
SECRET_PREFIX: Final = "ZCRAWL_SECRET_"
MOST_TASKS: Final = 1_000_000  # at a time, of one label
SECRETS: Final = "secrets"  # the section with a table for each secret
SECRETS_PREFIX: Final = "ZCRAWL_SECRETS__"  # of its variables: ZCRAWL_SECRETS__NAME=host,host
ENV_OTHERS: Final = ("ZCRAWL_DEBUG", "ZCRAWL_CONFIG")


class ShellConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which commands jobs of kind shell may run on this machine. By default none."""

    any: bool = False  # every command
    allow: tuple[str, ...] = ()  # patterns of command lines: "/usr/bin/rsync *"
    env: tuple[str, ...] = ()  # variables that jobs may set, if `allow` is used
    folders: tuple[str, ...] = ()  # folders that jobs may work in, if `allow` is used
    processes: int = 64  # of a command, with threads, if its job does not set shell.max_processes
    max_processes: int = 1_024  # the most that a job may set


class WorkerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of one machine."""

    slots: int = 32  # requests in flight per worker process
    # Tasks without a host at a time per worker process; 0: the processes share 4 per core.
    task_slots: int = 0
    processes: int = 0  # worker processes; 0: one per core
    labels: tuple[str, ...] = ()  # by which jobs are placed: [placement] of a job
    rate: float = 0.0  # requests per second of one worker, all hosts together; 0: no cap
    bandwidth: float = 0.0  # bytes per second of one worker; 0: no cap
    tls_files: tuple[str, ...] = ()  # folders whose files jobs may name as certificates
    stuck_after: float = 30.0  # CPU seconds after which a process whose loop is stuck is ended
    shell: ShellConfig = ShellConfig()


class DataConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dir: str = "zcrawl-data"  # holds the database, blobs and default output files


class LogConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    level: Literal["debug", "info", "warning", "error"] = "info"  # and what is worse
    format: Literal["text", "json"] = "text"


class ClusterConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which cluster this node belongs to. Without [consul] or masters there is none."""

    name: str = "zcrawl"  # clusters of different names can share a Consul
    id: str = ""  # the name of this node; empty: the name of the machine
    masters: tuple[str, ...] = ()  # control addresses, for nodes that do not use Consul
    allow_private: bool = False  # masters: jobs may reach addresses that are not public
    allow_code: bool = False  # masters: jobs may contain a spider's file, which workers run
    allow_shell: bool = False  # masters: jobs may run commands that the workers allow


class ConsulConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    address: str = ""  # host:port or https://host:port; empty: no Consul
    token: str = ""
    datacenter: str = ""
    ca_file: str = ""  # of an https agent; empty: the system's authorities


class DatabaseConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The database that masters write and `zcrawl export` reads."""

    urls: tuple[str, ...] = ()  # mysql://user:password@host:3306/zcrawl, one replicated database


class MeshConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The three sockets of a master, and the keys for connections to them."""

    bind: str = "127.0.0.1"
    advertise: str = ""  # the address that others connect to; empty: the one of `bind`
    control_port: int = 7600  # 0: any free port
    reports_port: int = 7601
    events_port: int = 7602
    key_file: str = ""  # this node's keys, made by `zcrawl keys new`; empty: no encryption
    server_key: str = ""  # workers and clients: the public key of the masters
    allow_file: str = ""  # masters: the public keys that may connect
    insecure: bool = False  # allow an address that other machines can reach, without keys


class BodiesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where bodies are stored: the same place for every node of a cluster."""

    url: str = ""  # s3://bucket/prefix, or a folder; empty: a folder in data.dir
    shared: bool = False  # all nodes have this folder under the same name


class OutputsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where masters of a cluster write the files of jobs."""

    dir: str = ""  # of relative paths; empty: the folder `outputs` in data.dir
    shared: bool = False  # all masters have the same folders under these names
    allow: tuple[str, ...] = ()  # s3://bucket/prefix/ or /folder/; below them jobs may write


class RetentionConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which ended runs masters keep, of jobs that do not say it themselves."""

    keep_runs: int = 0  # the newest of each job; 0: no limit
    keep_days: float = 0.0  # since their end; 0: no limit
    archive: str = ""  # s3://bucket/prefix or a folder, where runs are written before; empty: none


class TasksConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How masters give out tasks without a host."""

    label_limits: dict[str, int] = {}  # label → tasks at a time that need it, in the whole cluster


class SchedulesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When runs of jobs start by themselves, of jobs whose [schedule] does not say it."""

    timezone: str = "UTC"
    overlap: str = ""  # skip | queue | cancel | allow; empty: skip, and `queue` for parents
    catch_up: str = "none"  # none | last | all
    jitter: str = ""  # a duration; a job's `every` limits it


class SecretConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One secret of the workers. Its value is in the environment: ZCRAWL_SECRET_NAME."""

    hosts: tuple[str, ...] = ()  # hosts that may get it: name, name:port, *.name
    commands: tuple[str, ...] = ()  # commands that may get it, as in worker.shell.allow


class StandaloneConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nodes without a master, which share resources by a list (`zcrawl worker --standalone`)."""

    id: str = ""  # the name of this node in the list; ZCRAWL_NODE_ID goes first
    nodes: tuple[str, ...] = ()  # id, or id=tcp://host:port; ZCRAWL_NODES (JSON) goes first
    nodes_file: str = ""  # instead: a file that is watched: JSON, or one entry a line
    consul: bool = False  # without a list: the nodes that live, from Consul (section consul)
    resources: Literal["hosts", "urls"] = "hosts"  # what is shared


class ConsoleConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The look of `zcrawl console`, and the clusters that it can watch."""

    theme: str = ""  # a Textual theme, e.g. nord; empty: Textual's own
    keys: dict[str, str] = {}  # binding → keys, e.g. {"view.pause" = "f2"}
    clusters: dict[str, str] = {}  # name → a configuration file or a data folder


class GatewayJwtConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """JSON Web Tokens that the gateway accepts beside its own tokens."""

    keys: str = ""  # a JWKS: a file, or an https URL; empty: no JWT is accepted
    issuer: str = ""  # `iss` of each token
    audience: str = ""  # one of its `aud`
    algorithms: tuple[str, ...] = ("EdDSA", "RS256")  # of these and HS256
    user_claim: str = "sub"  # has the name of the user
    role_claim: str = "zcrawl_role"  # has viewer, submitter, operator or admin; a list is allowed


class GatewayConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The REST gateway of this machine."""

    http: str = ""  # host:port of `zcrawl gateway`; port 0: any free one
    tls_cert: str = ""  # a PEM file with the chain; it is read again when it changes
    tls_key: str = ""
    insecure: bool = False  # allow an address that other machines can reach, without TLS
    rate: float = 200.0  # requests per second of one user; 0: no limit
    burst: int = 1_000  # requests that a user may send at once
    connections: int = 2_000  # at the same time
    max_body: int = 8_000_000  # bytes of a request; seeds are a stream without this limit
    timeout: float = 30.0  # seconds for a request with its body
    cors: tuple[str, ...] = ()  # origins whose pages may use it; empty: none
    jwt: GatewayJwtConfig = GatewayJwtConfig()


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    worker: WorkerConfig = WorkerConfig()
    data: DataConfig = DataConfig()
    log: LogConfig = LogConfig()
    cluster: ClusterConfig = ClusterConfig()
    consul: ConsulConfig = ConsulConfig()
    database: DatabaseConfig = DatabaseConfig()
    mesh: MeshConfig = MeshConfig()
    bodies: BodiesConfig = BodiesConfig()
    outputs: OutputsConfig = OutputsConfig()
    retention: RetentionConfig = RetentionConfig()
    tasks: TasksConfig = TasksConfig()
    schedules: SchedulesConfig = SchedulesConfig()
    secrets: dict[str, SecretConfig] = {}
    standalone: StandaloneConfig = StandaloneConfig()
    console: ConsoleConfig = ConsoleConfig()
    gateway: GatewayConfig = GatewayConfig()

    @property
    def is_cluster(self) -> bool:
        """Return whether commands talk to a cluster and not to a data folder."""
        in_consul = self.consul.address and not self.standalone.consul
        return bool(in_consul or self.cluster.masters)


HIDDEN: Final = ("consul.token", "database.urls")  # not shown; a URL may hold a password


class Resolved(msgspec.Struct, frozen=True):
    """The configuration and where each of its values comes from, by dotted key."""

    config: Config
    origins: dict[str, str]

    def values(self) -> dict[str, Any]:
        """Return the values for people, with secrets hidden."""
        plain = msgspec.to_builtins(self.config)
        values = {key: _value_at(plain, key) for key in self.origins}
        return values | {key: "(set)" for key in HIDDEN if values[key]}


def resolve(
    text: str | None,
    source: str,
    environ: Mapping[str, str],
    flags: Mapping[str, Any] | None = None,
) -> Resolved:
    """Combine flags, environment, file and defaults into one configuration.

    `text` is the text of the file; None: no file. `flags` has dotted keys; None: flag not given.
    """
    values: dict[str, tuple[Any, str]] = {}
    if text is not None:
        for key, value in _flat(_table(text, source), source).items():
            values[key] = (value, source)
    values.update(_from_environ(environ))
    for key, value in (flags or {}).items():
        if value is not None:
            values[key] = (value, "flag")
    nested: dict[str, dict[str, Any]] = {}
    for key, (value, origin) in values.items():
        # Each value alone, so that an error can name the place where the value comes from.
        alone: dict[str, dict[str, Any]] = {}
        for table in (alone, nested):
            _put(table, key, value)
        _convert(alone, origin, lax=origin.startswith(ENV_PREFIX))
    # Lax conversion for all: the loop above has checked strict values strictly.
    config = _convert(nested, source, lax=True)
    config_keys = [*all_keys(), *(f"{SECRETS}.{name}" for name in config.secrets)]
    origins = {key: values[key][1] if key in values else "default" for key in config_keys}
    return Resolved(config, origins)


def all_keys() -> list[str]:
    """Return all keys except those below [secrets], whose names the operator chooses."""
    return [key for key in keys.dotted_keys(Config) if key != SECRETS]


_INNER: Final = ("worker.shell", "gateway.jwt")  # sections within sections
_LISTS: Final = (
    "cluster.masters",
    "database.urls",
    "outputs.allow",
    "worker.labels",
    "standalone.nodes",
    "worker.tls_files",
    "worker.shell.env",
    "worker.shell.folders",
    "gateway.cors",
    "gateway.jwt.algorithms",
)
_TABLES: Final = ("tasks.label_limits",)  # name=value in a variable
_COMMANDS: Final = ("worker.shell.allow",)  # lists whose entries have spaces


def _steps(key: str) -> tuple[str, ...]:
    """Return the sections and the name of a key: `worker.shell.any` is three steps."""
    inner = next((inner for inner in _INNER if key.startswith(f"{inner}.")), None)
    if inner is None:
        section, _, name = key.partition(".")
        return section, name
    return (*inner.split("."), key.removeprefix(f"{inner}."))


def _put(table: dict[str, dict[str, Any]], key: str, value: Any) -> None:
    *sections, name = _steps(key)
    within: dict[str, Any] = table
    for section in sections:
        within = within.setdefault(section, {})
    within[name] = value


def _value_at(table: Mapping[str, Any], key: str) -> Any:
    value: Any = table
    for step in _steps(key):
        value = value[step]
    return value


def _table(text: str, source: str) -> dict[str, Any]:
    import tomllib  # 5 ms of a start without such a file

    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: {keys.toml_error(error, text)}", code=BAD_TOML) from None
    except RecursionError:
        raise ConfigError(f"{source}: not valid TOML: nested too deeply", code=BAD_TOML) from None
    for key in keys.unknown_keys(table, Config):
        if "seeds" in table or ("name" in table and key == "name"):
            raise ConfigError(
                f"{source} is a job file, not a configuration; check it and one of its pages: "
                f"zcrawl test {source}; run it: zcrawl crawl {source}",
                code=UNKNOWN_KEY,
            )
        raise _unknown(key, source, key)
    return table


def _flat(table: Mapping[str, Any], source: str) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for section, inner in table.items():
        if not isinstance(inner, Mapping):
            raise ConfigError(
                f"{source}: {section!r} is a section; write [{section}], with keys below it"
            )
        for name, value in inner.items():
            key = f"{section}.{name}"
            if key not in _INNER:
                flat[key] = value
            elif isinstance(value, Mapping):
                flat.update({f"{key}.{inner_name}": own for inner_name, own in value.items()})
            else:
                raise ConfigError(f"{source}: {key!r} is a section; write [{key}]")
    return flat


def _from_environ(environ: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    values: dict[str, tuple[Any, str]] = {}
    config_keys = all_keys()
    for name, value in sorted(environ.items()):
        # A name without `__` cannot be a key: CI systems set names such as ZCRAWL_VERSION.
        if not name.startswith(ENV_PREFIX) or "__" not in name or name in ENV_OTHERS:
            continue
        if name.startswith(SECRET_PREFIX):
            continue  # a job's secret
        if name.startswith(SECRETS_PREFIX):
            hosts = {"hosts": _words(value)}
            values[f"{SECRETS}.{name.removeprefix(SECRETS_PREFIX)}"] = (hosts, name)
            continue
        key = name.removeprefix(ENV_PREFIX).replace("__", ".").lower()
        if key not in config_keys:
            raise _unknown(name, "environment", key)
        values[key] = (_entries(key, value), name)
    return values


def _entries(key: str, value: str) -> str | list[str] | dict[str, str]:
    """Return the value of a variable; a list or a table for keys that take one."""
    if key in _TABLES:
        pairs = (word.partition("=") for word in _words(value))
        return {name: entry for name, _, entry in pairs}
    if key in _COMMANDS:
        return [text.strip() for text in value.replace("\n", ";").split(";") if text.strip()]
    return _words(value) if key in _LISTS else value


def _words(value: str) -> list[str]:
    """Split a list in the environment at commas or spaces."""
    return value.replace(",", " ").split()


def _unknown(shown: str, source: str, key: str) -> ConfigError:
    hint = keys.nearest(key, Config)
    if hint and source == "environment":
        hint = ENV_PREFIX + hint.replace(".", "__").upper()
    meant = f"; did you mean {hint!r}?" if hint else ""
    return ConfigError(f"{source}: unknown key {shown!r}{meant}", code=UNKNOWN_KEY)


def _convert(table: Mapping[str, Any], origin: str, *, lax: bool) -> Config:
    try:
        config = msgspec.convert(table, Config, strict=not lax)
    except msgspec.ValidationError as error:
        what = keys.type_error(error, table)
        if lax:  # the environment has no quotes
            what = what.replace("text in quotes (write it without quotes)", "a text")
        raise ConfigError(f"{origin}: {what}") from None
    worker = config.worker
    checks = (
        ("worker.slots", 1, 10_000, worker.slots),
        ("worker.task_slots", 0, 10_000, worker.task_slots),
        ("worker.processes", 0, 1_000, worker.processes),
        ("worker.rate", 0, 1e9, worker.rate),
        ("worker.bandwidth", 0, 1e15, worker.bandwidth),
        ("worker.stuck_after", 2, 86_400, worker.stuck_after),
        ("retention.keep_runs", 0, 2**31 - 1, config.retention.keep_runs),
        ("retention.keep_days", 0, 36_600, config.retention.keep_days),
        ("mesh.control_port", 0, 65_535, config.mesh.control_port),
        ("mesh.reports_port", 0, 65_535, config.mesh.reports_port),
        ("mesh.events_port", 0, 65_535, config.mesh.events_port),
    )
    for key, least, most, value in checks:
        if not math.isfinite(value) or not least <= value <= most:
            raise ConfigError(f"{origin}: {key} is {value}; it must be {least} to {most:g}")
    if wrong := label_error(worker.labels):
        raise ConfigError(f"{origin}: worker.labels {wrong}")
    _check_tasks(config.tasks, origin)
    _check_schedules(config.schedules, origin)
    if not config.data.dir.strip() or "\0" in config.data.dir:
        raise ConfigError(f"{origin}: data.dir is {config.data.dir!r}; write the name of a folder")
    _check_rights(config, origin)
    for name in ("processes", "max_processes"):
        value = getattr(config.worker.shell, name)
        if value < 1:
            raise ConfigError(f"{origin}: worker.shell.{name} is {value}; it must be 1 or more")
    for key, name in (("cluster.name", config.cluster.name), ("cluster.id", config.cluster.id)):
        if not _NAME.fullmatch(name) and (name or key == "cluster.name"):
            raise ConfigError(f"{origin}: {key} is {name!r}; use letters, digits, . and -")
    return config


def _check_tasks(tasks: TasksConfig, origin: str) -> None:
    """Check the limits of labels."""
    for label, limit in tasks.label_limits.items():
        if wrong := label_error([label]).removeprefix("entry 1: ").removeprefix("entry 1 "):
            raise ConfigError(f"{origin}: tasks.label_limits: {wrong}")
        if not 1 <= limit <= MOST_TASKS:
            raise ConfigError(
                f"{origin}: tasks.label_limits.{label} is {limit}; it must be 1 to {MOST_TASKS}"
            )


def _check_schedules(schedules: SchedulesConfig, origin: str) -> None:
    """Check the defaults of schedules by the rules for the keys of a job."""
    if schedules == SchedulesConfig():
        return
    from zcrawl.submit.schedule import check_defaults  # 5 ms of a start without them

    try:
        check_defaults(ScheduleDefaults(**msgspec.structs.asdict(schedules)))
    except JobError as error:
        raise ConfigError(f"{origin}: {error}", code=error.code) from None


def _check_rights(config: Config, origin: str) -> None:
    """Check the rules of what jobs may use, so that no rule is ignored because it is invalid."""
    prefixes = {
        "outputs.allow": config.outputs.allow,
        "worker.tls_files": config.worker.tls_files,
        "worker.shell.folders": config.worker.shell.folders,
    }
    commands = {
        "worker.shell.allow": config.worker.shell.allow,
        **{f"{SECRETS}.{name}": secret.commands for name, secret in config.secrets.items()},
    }
    archive = config.retention.archive
    rules = (*prefixes.values(), *commands.values(), config.secrets, archive)
    if not any(rules):
        return
    from zcrawl.fetch.host_patterns import parse_pattern  # few configurations need them
    from zcrawl.submit.outputs import refuse_login
    from zcrawl.submit.prefixes import place_of, prefix_of
    from zcrawl.text.commands import parse_command_pattern

    try:
        if archive:
            key = "retention.archive"
            refuse_login(archive)
            place_of(archive)
        for key, texts in prefixes.items():
            for text in texts:
                if prefix_of(text).root != "/" and key != "outputs.allow":
                    raise ValueError(f"{text!r} is not a folder of this machine")
        for command_key, texts in commands.items():
            key = command_key
            for text in texts:
                parse_command_pattern(text)
        for name, secret in config.secrets.items():
            key = f"{SECRETS}.{name}"
            if not _SECRET_NAME.fullmatch(name):
                raise ValueError("use letters, digits and _ only in the name of a secret")
            for text in secret.hosts:
                parse_pattern(text)
    except JobError as error:  # a password
        raise ConfigError(f"{origin}: {key}: {error}", code=error.code) from None
    except ValueError as error:
        raise ConfigError(f"{origin}: {key}: {error}") from None
