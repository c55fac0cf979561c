"""The command ``xnq-dist settings``, and help that names the common settings."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from xnq_dist.app.output import Json, print_json
from xnq_dist.core.errors import SettingsError

__all__ = ["WithSettings", "settings_command"]


class WithSettings(TyperCommand):
    """A command whose help ends with the common settings."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the command's options, then the common settings."""
        super().format_help(ctx, formatter)
        from xnq_dist.app.settings_help import COMMON, settings_help

        typer.echo(settings_help(COMMON, 1))
        typer.echo("\nAll settings: xnq-dist settings")


def settings_command(
    section: Annotated[
        str | None,
        typer.Argument(help="Group or section, such as readout; default: all."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List all settings: default, allowed values, meaning."""
    from xnq_dist.app.settings_help import (
        GROUPS,
        group_of,
        settings_help,
        settings_rows,
    )

    every = {name: values for name, *values in settings_rows()}
    rows = {
        name: values
        for name, values in every.items()
        if section is None
        or section in (name, name.partition(".")[0], group_of(name).lower())
    }
    if not rows:
        sections = {name.partition(".")[0] for name in every if "." in name}
        known = sorted(sections | {title.lower() for title in GROUPS})
        raise SettingsError(
            f"there is no section {section!r}: choose one of {', '.join(known)}"
        )
    typer.echo(settings_help(rows))
    keys = ("values", "default", "meaning")
    print_json({k: dict(zip(keys, v, strict=True)) for k, v in rows.items()})
