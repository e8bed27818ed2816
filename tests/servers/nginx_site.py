"""A folder served by a real nginx on a free loopback port, for tests and benchmarks.

nginx gets a temporary prefix of its own, so it shares nothing with an nginx that the machine may
run. The listening socket is opened here and inherited by nginx (its documented binary-upgrade
variable NGINX): the port cannot be taken by somebody else between choosing and binding it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import grp
import http.client
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

START_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 5.0

CONFIG = """\
{user}
daemon off;
worker_processes 1;
pid {prefix}/nginx.pid;
error_log {prefix}/error.log warn;
events {{ worker_connections 1024; }}
http {{
  log_format lines '$status $request_method $request_uri';
  access_log {prefix}/access.log lines;
  client_body_temp_path {prefix}/body;
  proxy_temp_path {prefix}/proxy;
  fastcgi_temp_path {prefix}/fastcgi;
  uwsgi_temp_path {prefix}/uwsgi;
  scgi_temp_path {prefix}/scgi;
  types {{
    text/html html htm;
    text/css css;
    text/plain txt py;
    application/javascript js;
    image/png png;
    image/svg+xml svg;
  }}
  default_type application/octet-stream;
  sendfile on;
  tcp_nopush on;
  keepalive_timeout 60s;
  keepalive_requests 1000000;
  server {{
    listen 127.0.0.1:{port};
    root {root};
    {extra}
  }}
}}
"""


class NginxFailed(RuntimeError):
    """nginx is missing or did not start. Tests fail with it; they never skip."""


@dataclasses.dataclass(frozen=True)
class NginxSite:
    """A running site."""

    port: int
    pid: int
    access_log: Path

    @property
    def url(self) -> str:
        """The root, with its slash."""
        return f"http://127.0.0.1:{self.port}/"

    def requests(self) -> list[str]:
        """The request targets that were answered so far, in order, our own probes left out.

        nginx logs after it answers, in one event loop: once a later request has its answer, all
        earlier ones are in the log.
        """
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=START_TIMEOUT_S)
        client.request("OPTIONS", "/")
        client.getresponse().read()
        client.close()
        lines = self.access_log.read_text().splitlines()
        return [line.split(" ", 2)[2] for line in lines if line.split(" ", 2)[1] != "OPTIONS"]


@contextlib.contextmanager
def nginx_site(folder: Path, *, extra: str = "") -> Iterator[NginxSite]:
    """Serves `folder` until the block ends; `extra` goes into the server section as it is."""
    nginx = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if nginx is None:
        raise NginxFailed("nginx is not installed: `make test` installs it, or `apt install nginx`")
    root = folder.resolve(strict=True)
    with (
        tempfile.TemporaryDirectory(prefix="zcrawl-nginx-") as temporary,
        socket.create_server(("127.0.0.1", 0), backlog=511) as listener,
    ):
        prefix = Path(temporary)
        port = listener.getsockname()[1]
        config, errors = prefix / "nginx.conf", prefix / "error.log"
        config.write_text(
            CONFIG.format(user=_user(), prefix=prefix, port=port, root=root, extra=extra)
        )
        process = subprocess.Popen(
            # setpriv: nginx ends with the test process, even when that is killed.
            ["setpriv", "--pdeathsig", "TERM", nginx, "-p", prefix, "-c", config, "-e", errors],
            env={**os.environ, "NGINX": f"{listener.fileno()};"},
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            _wait_until_up(process, port, prefix)
            listener.close()  # nginx has its own copy; ours would keep the port open after it
            yield NginxSite(port, process.pid, prefix / "access.log")
        finally:
            _stop(process)


def _user() -> str:
    """As root, workers must stay root: the temporary prefix is closed to everybody else."""
    if os.geteuid() != 0:
        return ""
    group = grp.getgrgid(os.getegid()).gr_name
    return f"user {pwd.getpwuid(0).pw_name} {group};"


def _wait_until_up(process: subprocess.Popen[bytes], port: int, prefix: Path) -> None:
    """One request, which waits in the socket's backlog until nginx takes it."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=0.25)
    waited = 0.0
    while True:
        try:
            client.request("OPTIONS", "/")
            client.getresponse().read()
        except (OSError, http.client.HTTPException) as error:
            client.close()
            waited += 0.25
            if process.poll() is not None or waited > START_TIMEOUT_S:
                raise NginxFailed(f"nginx did not start: {_complaint(process, prefix)}") from error
        else:
            client.close()
            return


def _complaint(process: subprocess.Popen[bytes], prefix: Path) -> str:
    log = prefix / "error.log"
    if log.exists() and (text := log.read_text().strip()):
        return text
    if process.poll() is not None and process.stderr is not None:
        return process.stderr.read().decode(errors="replace").strip()
    return "no answer and no error message"


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Takes down exactly the process that was started; its worker goes with it."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stderr is not None:
        process.stderr.close()
