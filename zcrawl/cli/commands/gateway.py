"""`zcrawl gateway`: serve HTTP for a cluster; and `--http` of `zcrawl up` and `zcrawl master`."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zcrawl.cli.base import Command, Settings, common
from zcrawl.errors import UsageError
from zcrawl.model.reasons.usage import MISSING_EXTRA

if TYPE_CHECKING:
    from zcrawl.telemetry.logs.files import EventLog

http_option = click.option("--http", metavar="ADDR", help="Serve HTTP on host:port; port 0: any.")


@click.command("gateway", cls=Command)
@http_option
@common
def gateway_command(settings: Settings, http: str | None) -> int:
    """Serve the cluster over HTTP.

    The routes are listed at http://ADDR/v1/docs. Any number of gateways may run; none keeps
    anything that a restart would lose.
    """
    from zcrawl.cli.commands.daemons import run_until_signal
    from zcrawl.runtime.loop import run_async

    require_extra()
    from zcrawl.gateway.start import serve_on, target_of

    listener = open_listener(http or settings.config.gateway.http)
    log = settings.daemon_log("gateway")
    target = target_of(settings.config, settings.data, in_cluster=settings.in_cluster)
    tell_address(listener, settings)
    return run_async(
        run_until_signal(
            lambda stop: serve_on(listener, settings.config, target, log, stop),
            lambda: None,
        )
    )


def open_listener(address: str) -> socket.socket:
    require_extra()
    from zcrawl.gateway.listen import listen

    if not address:
        raise UsageError("give --http host:port, or set gateway.http in the configuration")
    return listen(address)


def require_extra() -> None:
    """Raise UsageError if the packages of the gateway are missing."""
    import importlib.util

    for package in ("litestar", "uvicorn", "jwt"):
        if importlib.util.find_spec(package) is None:
            raise UsageError(
                f"the gateway needs {package}: pip install 'zcrawl[gateway]'", code=MISSING_EXTRA
            )


def address_of(listener: socket.socket, settings: Settings) -> str:
    host, port = listener.getsockname()[:2]
    scheme = "https" if settings.config.gateway.tls_cert else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def tell_address(listener: socket.socket, settings: Settings) -> None:
    from zcrawl.cli import output

    url = address_of(listener, settings)
    if settings.json:
        output.print_json({"http": url})
    else:
        output.note(f"HTTP on {url}; routes: {url}/v1/docs")


@contextlib.asynccontextmanager
async def supervised_gateway(
    listener: socket.socket | None,
    settings: Settings,
    log: EventLog,
    *,
    data: Path | None,
    log_file: Path | None = None,
) -> AsyncIterator[None]:
    """Run a gateway as a child of this process, while the block runs; nothing without a socket."""
    if listener is None:
        yield
        return
    from zcrawl.gateway.child import supervise

    files = settings.config_files()
    config_file = files[0] if files else None
    errors = None if log_file is None else log_file.with_name("gateway.err")
    with listener:
        async with supervise(
            listener,
            config_file=config_file,
            data=data,
            log=log,
            log_file=log_file,
            errors=errors,
        ):
            yield
