"""peewee without the driver for MySQL, for those who open SQLite only.

peewee imports every driver that is installed, and PyMySQL brings `cryptography` along: a tenth of
what a crawl's start loads. `dialects.mysql` hands the driver to peewee when it is needed.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Final

DRIVERS: Final = ("pymysql", "MySQLdb")


def load() -> None:
    """Called before whatever imports peewee; changes nothing once it is loaded."""
    if "peewee" in sys.modules or not sys.modules.keys().isdisjoint(DRIVERS):
        return
    modules: dict[str, Any] = sys.modules
    modules.update(dict.fromkeys(DRIVERS))  # None: to import it is an ImportError
    try:
        importlib.import_module("peewee")
    finally:
        for name in DRIVERS:
            del modules[name]
