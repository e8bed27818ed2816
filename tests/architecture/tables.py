"""The tables in the docs that are written from a registry. `make tables` writes them.

A table stands between two comments in its page. `test_tables.py` fails when a page differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from zcrawl.master.desk.operation import OPERATIONS, Argument, Operation
from zcrawl.master.desk.operations import PAGING
from zcrawl.model.formats import FORMATS, Format

REPOSITORY: Final = Path(__file__).resolve().parents[2]


def operations_table() -> str:
    """Return the table of operations in docs/protocol.md."""
    head = ("request", "arguments", "answer", "role", "repeat", "without a leader")
    paging = ", ".join(map(_argument, PAGING))
    return f"{_table(head, map(_operation_row, OPERATIONS.values()))}\n*paging*: {paging}.\n"


def _operation_row(operation: Operation) -> tuple[str, ...]:
    arguments = [
        _argument(argument) for argument in operation.arguments.values() if argument not in PAGING
    ]
    if set(PAGING) <= set(operation.arguments.values()):
        arguments.append("*paging*")
    return (
        f"`{operation.name}`",
        ", ".join(arguments) or "–",
        operation.answer,
        operation.right.name_in_list + (" (its own)" if operation.own else ""),
        operation.repeat.value,
        "refused" if operation.needs_leader else "answered",
    )


def _argument(argument: Argument) -> str:
    optional = "" if argument.required else "?"
    default = f" = {argument.default}" if argument.default else ""
    about = f" ({argument.about})" if argument.about else ""
    return f"`{argument.name}{optional}`: {argument.type.value}{default}{about}"


def formats_table() -> str:
    """Return the table of output formats in docs/outputs.md."""
    head = ("format", "name", "endings", "needs", "what it holds, when it appears")
    return _table(head, map(_format_row, FORMATS.values()))


def _format_row(format: Format) -> tuple[str, ...]:
    return (
        format.title,
        f"`{format.name}`",
        ", ".join(f"`{ending}`" for ending in format.endings),
        f"`zcrawl[{format.extra}]`" if format.extra else "–",
        format.about,
    )


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return (
        "".join(f"| {' | '.join(line)} |\n" for line in lines)
        .replace("| --- ", "|---")
        .replace("|--- |", "|---|")
    )


TABLES: Final[dict[str, dict[str, Callable[[], str]]]] = {
    "docs/protocol.md": {"operations": operations_table},
    "docs/outputs.md": {"formats": formats_table},
}


def with_tables(page: str, text: str) -> str:
    """Return the text of a page with its tables as the registries have them."""
    for name, table in TABLES[page].items():
        begin = f"<!-- {name}: written by `make tables`, do not edit -->\n"
        end = f"<!-- end of {name} -->\n"
        before, opened, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not opened or not closed:
            raise ValueError(f"{page} has no place for the table {name}")
        text = f"{before}{begin}\n{table()}\n{end}{after}"
    return text


def main() -> None:
    for page in TABLES:
        path = REPOSITORY / page
        path.write_text(with_tables(page, path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
