"""A local web of misbehaving servers. See `server.MisbehavingWeb`."""

from tests.web.server import Hit, MisbehavingWeb, WebThread

__all__ = ["Hit", "MisbehavingWeb", "WebThread"]
