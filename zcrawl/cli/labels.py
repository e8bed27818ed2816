"""The flag `--label` of commands that start workers: labels besides those of the configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import msgspec

from zcrawl.config import Config
from zcrawl.errors import UsageError
from zcrawl.submit.labels import label_error


def label_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--label`, which the command gets as `labels`."""
    text = "Add a label to the workers, by which jobs are placed."
    add = click.option("--label", "labels", multiple=True, metavar="NAME", help=text)
    return add(function)


def with_labels(config: Config, labels: tuple[str, ...]) -> Config:
    """Return the configuration with these labels added; UsageError for a bad one."""
    merged = tuple(dict.fromkeys((*config.worker.labels, *labels)))
    if wrong := label_error(merged):
        raise UsageError(f"--label: {wrong}")
    worker = msgspec.structs.replace(config.worker, labels=merged)
    return msgspec.structs.replace(config, worker=worker)
