"""The command ``xnq-dist contract``."""

from __future__ import annotations

from typing import Annotated

import typer

from xnq_dist.app.output import Json, print_json

__all__ = ["contract"]


def contract(
    directory: Annotated[
        str | None,
        typer.Argument(
            metavar="[DIR]",
            help="Run directory, whose tables and types are then described; default: "
            "all tables that a run may publish.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the data contract of the published tables (ODCS, YAML)."""
    import yaml

    from xnq_dist.core.contract import data_contract

    schemas = None
    if directory is not None:
        from xnq_dist.core.store import read_published

        version = read_published(directory)
        schemas = {name: version.schema(name) for name in version.tables()}
    values = data_contract(schemas)
    typer.echo(yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=88))
    print_json(values, as_json)
