"""httpbin, a server that nobody here wrote, in a process of its own."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

_SERVE = """
import sys
from httpbin import app
from werkzeug.serving import WSGIRequestHandler, make_server
WSGIRequestHandler.protocol_version = "HTTP/1.1"
server = make_server("127.0.0.1", 0, app, threaded=True)
print(server.port, flush=True)
server.serve_forever()
"""


@contextlib.contextmanager
def httpbin() -> Iterator[str]:
    """Its origin, for as long as it runs."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVE],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port, "httpbin did not start"
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
