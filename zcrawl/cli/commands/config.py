"""`zcrawl config show`, `validate` and `schema`."""

from __future__ import annotations

import click

from zcrawl.cli.base import Command, Group, Settings, common


@click.group("config", cls=Group)
def config_command() -> None:
    """Show or check the configuration.

    Flags win over the environment (ZCRAWL_SECTION__KEY), the environment over the file, the file
    over the defaults. The file is --config, ./zcrawl.toml or ~/.config/zcrawl/config.toml.
    """


@config_command.command("show", cls=Command)
@common
def show(settings: Settings) -> int:
    """Show each value and where it comes from."""
    from zcrawl.cli import output

    values, origins = settings.resolved.values(), settings.resolved.origins
    if settings.json:
        output.print_json(
            {key: {"value": values[key], "from": origins[key]} for key in sorted(values)}
        )
    else:
        output.table(("key", "value", "from"), [(key, values[key], origins[key]) for key in values])
    return 0


@config_command.command("validate", cls=Command)
@click.argument("file", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
def validate(file: str | None, as_json: bool) -> int:
    """Check a file, or the one that would be used; exit 2 means that it is wrong."""
    from zcrawl.cli import output
    from zcrawl.cli.base import load_settings, read_config

    load_settings(file, {})
    text, source = read_config(file)
    if as_json:
        output.print_json({"ok": True, "file": source if text is not None else None})
    else:
        output.note(f"{source}: ok" if text is not None else "no configuration file; defaults")
    return 0


@config_command.command("schema", cls=Command)
@click.argument("of", type=click.Choice(["job", "config"]), default="job")
@click.option("--json", is_flag=True, expose_value=False, help="Accepted; a schema is always JSON.")
def schema(of: str) -> int:
    """Print the JSON Schema of job files, or of config files, for editors and other programs."""
    import json

    from zcrawl.cli import output
    from zcrawl.config import Config
    from zcrawl.submit.read import job_schema, of_type

    json_schema = job_schema() if of == "job" else of_type(Config, "A zcrawl config file")
    output.print_json_text(json.dumps(json_schema, indent=2, ensure_ascii=False))
    return 0
