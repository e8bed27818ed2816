"""Load peewee without the driver for MySQL, for processes that open only SQLite.

peewee imports every installed driver, and PyMySQL imports `cryptography`: a tenth of the modules
that the start of a crawl loads. `dialects.mysql` gives the driver to peewee when it is needed.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Final

DRIVERS: Final = ("pymysql", "MySQLdb")


def load() -> None:
    """Load peewee; call this before any import of it. A second call changes nothing."""
    if "peewee" in sys.modules or not sys.modules.keys().isdisjoint(DRIVERS):
        return
    modules: dict[str, Any] = sys.modules
    modules.update(dict.fromkeys(DRIVERS))  # None: to import it is an ImportError
    try:
        importlib.import_module("peewee")
    finally:
        for name in DRIVERS:
            del modules[name]
