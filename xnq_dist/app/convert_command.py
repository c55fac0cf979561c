"""The command ``xnq-dist convert``."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from xnq_dist.app.output import Json, print_json
from xnq_dist.core.errors import SettingsError

__all__ = ["WithFormats", "convert"]


class WithFormats(TyperCommand):
    """A command whose help lists every format; so do errors in its arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command's arguments."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            from xnq_dist.convert import FORMATS

            raise SettingsError(
                f"{error.format_message()} Write xnq-dist convert FORMAT IN OUT, with "
                f"one of the formats {', '.join(FORMATS.records())}, or auto"
            ) from error

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the command's options, then the formats."""
        super().format_help(ctx, formatter)
        from xnq_dist.convert import FORMATS

        typer.echo("Formats:")
        for name, record in FORMATS.records().items():
            typer.echo(f"  {name:<10} {record.text}")


def convert(
    form: Annotated[
        str,
        typer.Argument(metavar="FORMAT", help="Name of a format, or auto."),
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
