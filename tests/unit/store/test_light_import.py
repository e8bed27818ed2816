"""peewee without PyMySQL: SQLite does not load it, MySQL still gets it."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIGHT = "import sys; from zcrawl.store.sql import light; light.load(); import peewee; "


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("print('pymysql' in sys.modules, peewee.mysql)", "False None"),
        (
            "import zcrawl.store.sql.dialects.mysql, pymysql; print(peewee.mysql is pymysql)",
            "True",
        ),
        ("light.load(); print('peewee' in sys.modules)", "True"),
    ],
)
def test_the_driver_for_mysql_is_loaded_when_it_is_needed(text: str, output: str) -> None:
    """Not with peewee; but the dialect that needs it finds it, and peewee with it."""
    done = subprocess.run(
        [sys.executable, "-c", LIGHT + text], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == output, done.stderr
