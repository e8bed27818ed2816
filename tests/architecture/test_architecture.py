"""The repository keeps its own rules: purity by folder, docstrings, no machine's paths."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.architecture import owner_rules, reason_rules, rules
from zcrawl.model.reasons.registry import REASONS

REPOSITORY = Path(__file__).resolve().parents[2]
NOT_OURS = {
    "build",
    "dist",
    "zcrawl-data",
    "zcrawl-demo",
    "demo-data",
    "__pycache__",
    "node_modules",
}
BINARY = {".png", ".ico", ".gz", ".db", ".woff2", ".pyc", ".so", ".zip", ".parquet"}


def files() -> Iterator[Path]:
    """All files of the source tree; hidden folders but .ci are tools' leavings."""
    for folder, folders, names in os.walk(REPOSITORY):
        folders[:] = [
            name
            for name in folders
            if name not in NOT_OURS
            and not name.endswith(".egg-info")
            and (not name.startswith(".") or name == ".ci")
        ]
        # A work tree of git has a file of this name instead of a folder.
        yield from (Path(folder, name) for name in sorted(names) if name != ".git")


def sources(*packages: str) -> Iterator[tuple[str, str]]:
    for file in files():
        path = file.relative_to(REPOSITORY).as_posix()
        if path.endswith(".py") and path.split("/")[0] in packages:
            yield path, file.read_text(encoding="utf-8")


def report(complaints: list[str]) -> None:
    assert not complaints, "\n" + "\n".join(complaints)


def test_a_module_is_pure_unless_its_folder_touches_the_world() -> None:
    """Outside of the listed folders nothing imports a clock, chance, task, socket, file or
    database, and libraries with a place of their own are imported there only."""
    checked = list(sources("zcrawl"))
    assert sum(rules.is_pure(path) for path, _ in checked) > 5
    report([line for path, text in checked for line in rules.purity_complaints(path, text)])


def test_every_folder_of_the_list_exists() -> None:
    """A folder that was renamed would silently lose its rule."""
    places = {place for places in rules.PLACES.values() for place in places}
    missing = [
        place for place in {*rules.WORLD_FOLDERS, *places} if not (REPOSITORY / place).exists()
    ]
    assert missing == []


def test_ruff_and_the_import_contract_have_the_same_list_of_libraries() -> None:
    """Three tools hold "only mesh/sockets imports zmq"; the list in `rules` is the one to edit."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    lint = project["tool"]["ruff"]["lint"]
    assert set(lint["flake8-tidy-imports"]["banned-api"]) == set(rules.PLACES)
    ignored = {
        folder.removesuffix("**")
        for folder, names in lint["per-file-ignores"].items()
        if "TID251" in names and folder.startswith("zcrawl/")
    }
    assert ignored == {place for places in rules.PLACES.values() for place in places}
    (contract,) = [
        contract
        for contract in project["tool"]["importlinter"]["contracts"]
        if contract["name"] == "Each library has its folder"
    ]
    assert set(contract["forbidden_modules"]) == set(rules.PLACES)
    assert set(contract["ignore_imports"]) == {
        f"{place.replace('/', '.')}** -> {library}"
        for library, places in rules.PLACES.items()
        for place in places
        if _is_imported(library, place)
    }


def _is_imported(library: str, place: str) -> bool:
    """The contract may name only what there is (`playhouse` is banned, and nowhere imported)."""
    pattern = re.compile(rf"^\s*(?:import|from) {library}\b", re.M)
    return any(path.startswith(place) and pattern.search(text) for path, text in sources("zcrawl"))


def test_only_one_module_compiles_expressions_of_a_job() -> None:
    """`re` runs patterns that are written in the source; all others run on RE2, with limits."""
    checked = sources("zcrawl")
    report([line for path, text in checked for line in rules.expression_complaints(path, text)])


def test_keys_are_made_by_the_rules_of_a_run() -> None:
    """Only `frontier` makes canonical rules, and nobody takes a key from the default ones."""
    checked = sources("zcrawl")
    report([line for path, text in checked for line in rules.key_complaints(path, text)])


def test_a_worker_makes_results_in_one_place() -> None:
    """Whoever asks what becomes of a page has one file to read."""
    checked = sources("zcrawl")
    report([line for path, text in checked for line in rules.result_complaints(path, text)])
    assert "return Result(" in Path(rules.ATTEMPT).read_text()


def test_shared_state_has_one_writer() -> None:
    """The fields of a leader's state and of hosts are written by the modules that define them;
    all others call methods that say what happened."""
    fields = owner_rules.fields_of(REPOSITORY)
    assert {"withheld", "planner"} <= fields["LeaderState"].keys()
    assert {"parts", "pace"} <= fields["HostState"].keys()
    checked = sources("zcrawl")
    report(
        [
            line
            for path, text in checked
            for line in owner_rules.owner_complaints(path, text, fields)
        ]
    )


def test_reasons_live_in_the_registry() -> None:
    """No module writes a reason out: a code that is not registered has no meaning and no remedy."""
    checked = sources("zcrawl", "console")
    report([line for path, text in checked for line in reason_rules.reason_complaints(path, text)])


def test_each_exception_to_the_rule_of_reasons_is_needed() -> None:
    """An ordinary word that no module uses, or that is no code, would only hide a reason."""
    checked = [
        text
        for path, text in sources("zcrawl", "console")
        if not path.startswith(reason_rules.REGISTRY)
    ]
    used = {word for word in reason_rules.ORDINARY if any(f'"{word}"' in text for text in checked)}
    assert used == reason_rules.ORDINARY
    assert [word for word in reason_rules.ORDINARY if word not in REASONS] == []
    by_path = dict(sources("zcrawl"))
    unused = [
        path for path, text in reason_rules.SENTENCES.items() if text not in by_path.get(path, "")
    ]
    assert unused == []


def test_modules_and_packages_say_what_they_are_for() -> None:
    """Each has a docstring; a package's `__init__` has nothing else, for it runs at every start."""
    checked = list(sources("zcrawl", "console"))
    report([line for path, text in checked for line in rules.module_complaints(path, text)])
    report([line for path, text in checked for line in rules.package_complaints(path, text)])


def test_only_the_output_of_commands_writes_to_a_terminal() -> None:
    """Whoever prints by another way could forget the rule for foreign text."""
    checked = sources("zcrawl", "console")
    report([line for path, text in checked for line in rules.printing_complaints(path, text)])


def test_tests_state_what_they_test_and_do_not_sleep() -> None:
    """Each test has a docstring; only tests of real processes may sleep."""
    checked = sources("tests")
    report([line for path, text in checked for line in rules.testfile_complaints(path, text)])


def test_no_file_names_a_place_of_one_machine() -> None:
    """The tree can be cloned anywhere: it names no home folder and no registry's host."""
    complaints = []
    for file in files():
        if file.suffix not in BINARY:
            path = file.relative_to(REPOSITORY).as_posix()
            text = file.read_text(encoding="utf-8", errors="replace")
            complaints += rules.text_complaints(path, text)
    report(complaints)
