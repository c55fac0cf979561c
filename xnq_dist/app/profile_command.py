"""The command ``xnq-dist profile``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xnq_dist.app.output import Json, print_json

__all__ = ["profile"]


def profile(
    nodes: Annotated[str, typer.Option(help="Node table, in the forms of run.")],
    edges: Annotated[str, typer.Option(help="Edge table.")],
    memberships: Annotated[
        str | None, typer.Option(help="Community memberships.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML file with settings.", show_default=False)
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="One setting; repeatable."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what the tables hold, and what looks wrong in them; nothing is computed.

    Some 10 million rows take 10 seconds. The exit status is 2 if a run would be
    refused.
    """
    from xnq_dist.core.config import load_settings
    from xnq_dist.graph.profile.headers import check_headers
    from xnq_dist.graph.profile.inputs import profile_inputs
    from xnq_dist.graph.profile.words import lines
    from xnq_dist.graph.tables import Sources

    chosen = load_settings(config, settings or ())
    sources = Sources(nodes, edges, memberships)
    check_headers(sources, chosen)
    found = profile_inputs(sources, chosen, every=True)
    for line in lines(found, chosen.disclosure.min_size):
        typer.echo(line)
    print_json(found.to_dict(), as_json)
    if any(each.level == "refusal" for each in found.findings):
        raise typer.Exit(2)
