"""The command ``xnq-dist convert``."""

from __future__ import annotations

from typing import Annotated

import typer

from xnq_dist.app.output import Json, print_json
from xnq_dist.convert import FORMATS

__all__ = ["convert"]

KNOWN = "; ".join(f"{name}: {each.text}" for name, each in FORMATS.records().items())


def convert(
    form: Annotated[
        str,
        typer.Argument(metavar="FORMAT", help=f"auto: recognised. {KNOWN}."),
    ],
    source: Annotated[str, typer.Argument(metavar="IN", help="File or folder.")],
    out: Annotated[str, typer.Argument(metavar="OUT", help="Folder for the tables.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace tables in the folder.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Convert a graph in another format to the tables that `run` reads."""
    from xnq_dist.convert.conversion import convert as write
    from xnq_dist.convert.conversion import run_command

    found = write(source, out, form, overwrite)
    command = run_command(found, out)
    typer.echo(
        f"{found.nodes.num_rows:,} nodes and {found.edges.num_rows:,} edges in {out}"
    )
    for note in found.notes:
        typer.echo(f"  {note}")
    typer.echo(f"next:\n  {command}")
    values = {
        "nodes": found.nodes.num_rows,
        "edges": found.edges.num_rows,
        "notes": found.notes,
        "run": command,
    }
    print_json(values, as_json)
