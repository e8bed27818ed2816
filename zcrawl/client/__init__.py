"""A typed client of the REST gateway: `from zcrawl.client import AsyncClient, Client`.

`calls` has the calls of the API, `errors` the tree of errors, `sync` and `aio` the two clients.
"""

from zcrawl.client.aio import AsyncClient
from zcrawl.client.errors import ApiError
from zcrawl.client.sync import Client

__all__ = ["ApiError", "AsyncClient", "Client"]
