"""Several clusters by name from the configuration, and a change from one to the other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from console.app import ConsoleApp
from console.state import LinkState
from zcrawl.cli.base import load_settings
from zcrawl.cli.commands.console import targets_of
from zcrawl.errors import UsageError
from zcrawl.roles.embedded import EmbeddedCluster

PATIENCE_S = 60.0


def config(folder: Path) -> str:
    """A configuration that names two others: a data folder, and a file of its own."""
    (folder / "lab.toml").write_text(f'[data]\ndir = "{folder / "lab"}"\n')
    path = folder / "zcrawl.toml"
    path.write_text(
        f'[data]\ndir = "{folder / "here"}"\n'
        "[console]\n"
        f'clusters = {{ lab = "{folder / "lab.toml"}", old = "{folder / "old data"}" }}\n'
    )
    return str(path)


def test_clusters_have_names_and_each_the_flags_that_mean_it(tmp_path: Path) -> None:
    """So that the command line that is shown can be pasted."""
    path = config(tmp_path)
    targets = targets_of(load_settings(path, {}), None)
    assert list(targets) == ["here", "lab", "old"]
    assert targets["here"].flags == f"--config {path}"
    named = targets_of(load_settings(path, {"data.dir": str(tmp_path / "x")}), None)
    assert named["x"].flags == f"--data {tmp_path / 'x'}"
    assert targets["lab"].flags == f"--config {tmp_path / 'lab.toml'}"
    assert targets["old"].flags == f"--data '{tmp_path / 'old data'}'"
    assert "no cluster runs in" in targets["old"].nobody


def test_the_chosen_one_is_shown_first_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    """With the names that there are."""
    settings = load_settings(config(tmp_path), {})
    assert next(iter(targets_of(settings, "old"))) == "old"
    with pytest.raises(UsageError, match="known: here, lab, old"):
        targets_of(settings, "moon")


async def test_the_console_goes_from_one_cluster_to_the_other(tmp_path: Path) -> None:
    """By name, with nothing of the old one beside the new."""
    targets = targets_of(load_settings(config(tmp_path), {}), None)

    async def until(cluster: str, jobs: set[str]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                view = app.view
                shot = view.live.snapshot
                if view.cluster == cluster and view.link.state is LinkState.LIVE and shot:
                    names = {run.name for run in shot.runs}
                    assert names <= jobs
                    if names == jobs:
                        return
                await pilot.pause(0.05)

    app = ConsoleApp(targets)
    async with (
        EmbeddedCluster(tmp_path / "here", 0) as here,
        EmbeddedCluster(tmp_path / "lab", 0) as lab,
        app.run_test(size=(100, 30)) as pilot,
    ):
        for cluster, name in ((here, "docs"), (lab, "shop")):
            spec = {"name": name, "seeds": ["http://a.test/"]}
            args = {"spec": spec, "mode": "new", "seeds": ["http://a.test/"]}
            await cluster.ask("submit", args)
        await until("here", {"docs"})
        await pilot.press("colon", *"cluster", "space", *"la", "tab", "enter")
        await until("lab", {"shop"})
        await pilot.press("colon", *"cluster", "space", *"here", "enter")
        await until("here", {"docs"})
