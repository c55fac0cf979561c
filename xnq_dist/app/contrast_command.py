"""The command ``xnq-dist contrast``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from xnq_dist.app.output import Directory, Json, print_json

__all__ = ["contrast"]


def contrast(
    directory: Directory,
    first: Annotated[str, typer.Argument(help="Name of a community.")],
    second: Annotated[
        str, typer.Argument(help="Name of the community to compare it with.")
    ],
    as_json: Json = False,
) -> None:
    """Difference between the prevalence of two communities, with its interval."""
    from xnq_dist.quantify.default.contrast import contrast as compare

    rows = compare(directory, first, second)
    for row in rows:
        typer.echo(
            f"  class {row.class_name}: {100 * row.first:.1f} % in {first}, "
            f"{100 * row.second:.1f} % in {second}, difference "
            f"{100 * row.difference:+.1f} points "
            f"(interval {100 * row.lower:+.1f} to {100 * row.upper:+.1f})"
        )
    print_json({row.class_name: asdict(row) for row in rows}, as_json)
