"""What a person should know of a job that is right as it is.

Called by `crawl` and `submit`. Pure.
"""

from __future__ import annotations

from zcrawl.model.spec import CRAWL, JobSpec


def advice(spec: JobSpec) -> str:
    """One line, or nothing: most jobs need none."""
    inside = [f"middleware {name!r}" for name in spec.middlewares]
    inside += [f"parser {name!r}" for name in spec.parsers]
    if spec.kind != CRAWL:
        inside.append(f"executor {spec.kind!r}")
    if not inside:
        return ""
    names, verb = ", ".join(inside), "runs" if len(inside) == 1 else "run"
    return (
        f"{names} {verb} inside the workers: unlike a spider's, code that hangs or exits there is "
        "not cut off cleanly (docs/plugins.md)"
    )
