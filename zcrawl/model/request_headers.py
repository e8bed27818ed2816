"""Request headers that only zcrawl itself sets.

`submit` refuses jobs that name one, the worker refuses such requests of a spider. Pure.
"""

from __future__ import annotations

from typing import Final

# Host is the URL's: servers that share an address would hand the request, and its secrets, to
# another site. The others say where a request ends and what its connection is used for next: a
# second value could turn one request into two, or take the connection away from HTTP.
FORBIDDEN_HEADERS: Final = frozenset(
    {"connection", "content-length", "host", "transfer-encoding", "upgrade"}
)
