"""zcrawl's contract suite on this package's plugins: `pytest` in this folder runs it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from zcrawl_stamp import Files, Lines, Stamp
from zcrawl_stamp.executors import Count
from zcrawl_stamp.stores import Folder

from zcrawl.testing.plugin_contract import (
    ExecutorContract,
    FetcherContract,
    MiddlewareContract,
    ParserContract,
    StoreContract,
)


class TestStamp(MiddlewareContract):
    def make(self) -> Stamp:
        return Stamp(key="k")


class TestLines(ParserContract):
    accepted = ("http://a.test/list.txt", "text/plain; charset=utf-8", b"one\n/two\n")

    def make(self) -> Lines:
        return Lines()


class TestFiles(FetcherContract):
    good_url = "http://a.test/"

    def make(self) -> Files:
        return Files(pages={"/": "<title>Mine"})

    def test_a_path_that_is_none_is_refused(self) -> None:
        """Options come from a job file: whatever they are, the plugin says what is wrong."""
        with pytest.raises(ValueError, match="no path"):
            Files(pages={"a": ""})


class TestFolder(StoreContract):
    def make(self) -> Folder:
        self.path = tempfile.mkdtemp()
        return Folder(self.path)

    def read(self, store: Folder) -> list[bytes]:
        files = Path(self.path).glob("*.jsonl")
        return [line for file in files for line in file.read_bytes().splitlines()]


class TestCount(ExecutorContract):
    def make(self) -> Count:
        return Count(str(Path(__file__).parent), "*.py")
