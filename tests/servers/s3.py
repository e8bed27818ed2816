"""An S3 server for tests: moto's, on a free port, in a process of its own."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

BUCKET = "crawl"
PATIENCE_S = 60.0


@contextlib.contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """The environment that leads to it; the bucket exists."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"
    server = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _make_bucket(url)
        yield {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }
    finally:
        server.kill()
        server.wait()


def _make_bucket(url: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    request = urllib.request.Request(f"{url}/{BUCKET}", method="PUT")
    while True:
        try:
            with urllib.request.urlopen(request, timeout=5):
                return
        except OSError:
            assert time.monotonic() < deadline, "the S3 server does not answer"
            time.sleep(0.1)


def objects(prefix: str = "") -> dict[str, bytes]:
    """Everything in the bucket. The environment must lead to the server."""
    import obstore
    from obstore.store import S3Store

    assert "AWS_ENDPOINT_URL" in os.environ
    store = S3Store.from_url(f"s3://{BUCKET}", client_options={"allow_http": True})
    return {
        meta["path"]: bytes(obstore.get(store, meta["path"]).bytes())
        for batch in obstore.list(store, prefix or None)
        for meta in batch
    }
