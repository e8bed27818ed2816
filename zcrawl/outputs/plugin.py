"""Write an output with a plugin: `output.to = ["plugin:NAME"]`.

Opened by `files.sinks` for the master's output loop. Pure. Batches have names that follow
from the cursor before them: after a crash the same name comes again, with the same items and maybe
more behind them, and the plugin replaces what it has under that name. So each item is there once.
A run that ends without an item is one batch of none.
"""

from __future__ import annotations

from collections.abc import Sequence

from zcrawl import plugins
from zcrawl.errors import PluginError, StoreUnavailable
from zcrawl.model.reasons.storage import OUTPUT_PLUGIN
from zcrawl.model.spec import JobSpec
from zcrawl.store.output_mark import OutputMark, WholeSink, is_bare
from zcrawl.store.queries import ItemRow, OutputRow


class PluginSink(WholeSink):
    def __init__(self, row: OutputRow, spec: JobSpec) -> None:
        self.cursor = row.cursor
        self._name = row.path.removeprefix("plugin:")
        self._run = row.run
        self._bare = is_bare(row)
        try:
            self._store: plugins.ItemStore = plugins.make(
                "stores", self._name, spec.plugins.get(self._name, {})
            )
        except PluginError as error:  # it continues when the operator installs the plugin
            missing = error.code == PluginError.MISSING
            why = f"no {error} is installed on this master" if missing else str(error)
            text = f"{row.path}: {why}; the items wait in the database"
            raise PluginError(text, code=error.code) from error

    def take(self, rows: Sequence[ItemRow], utc: float) -> OutputMark:
        self._put([row.data for row in rows])
        self.cursor = rows[-1].id
        return OutputMark(self.cursor, 0, 0, 0.0)

    def settle(self, ended: bool, utc: float) -> OutputMark | None:
        if not (ended and self._bare and not self.cursor):
            return None
        self._put([])
        self._bare = False
        return OutputMark(0, 0, 0, utc)

    def _put(self, items: list[bytes]) -> None:
        try:
            self._store.put(f"run-{self._run}-after-{self.cursor}", items)
        except Exception as error:  # an error of the plugin: tried again until it works
            text = f"store {self._name!r}: {type(error).__name__}: {error}"
            raise StoreUnavailable(text, code=OUTPUT_PLUGIN) from error

    def close(self) -> None:
        self._store.close()
