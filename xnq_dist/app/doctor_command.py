"""The command ``xnq-dist doctor``."""

from __future__ import annotations

from typing import Annotated

import typer

from xnq_dist.app.environment import prepare_environment
from xnq_dist.app.output import Config, Json, Set, begin, print_json

__all__ = ["doctor"]


def doctor(
    directory: Annotated[
        str,
        typer.Argument(
            metavar="[DIR]",
            help="Run directory to examine, or a folder to test writing in.",
        ),
    ] = ".",
    address: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler to check as well.")
    ] = None,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Check every byte of the run directory."),
    ] = False,
    kernels: Annotated[
        bool,
        typer.Option(
            "--kernels",
            help="Only compile the kernels, so that the first run does not wait.",
        ),
    ] = False,
    config: Config = None,
    settings: Set = None,
    as_json: Json = False,
) -> None:
    """Check this machine and a run directory; name each fault with its fix.

    Of a run directory: lock, damage, interrupted stages, formats, settings against
    those of the last run (--config, --set), checkpoints, temporary files, space. Exit
    status 1 if there is a fault; notes are for your information. With --verify, every
    byte is compared with its checksum, and nothing else is checked.
    """
    if kernels:
        _compile(as_json)
        return
    begin("checking this machine")
    prepare_environment()
    from xnq_dist.app.doctor import examine, intact
    from xnq_dist.core.config import load_settings

    chosen = load_settings(config, settings or ()) if config or settings else None
    checks = [intact(directory)] if verify else examine(address, directory, chosen)
    for check in checks:
        typer.echo(f"  {check.state:<6}{check.name:<22}{check.text}")
    print_json({check.name: [check.state, check.text] for check in checks}, as_json)
    if any(check.state == "fault" for check in checks):
        raise typer.Exit(1)


def _compile(as_json: bool) -> None:
    from xnq_dist.app.compiled import compile_kernels

    begin("compiling the kernels")
    seconds = round(compile_kernels(), 1)
    typer.echo(f"  compiled in {seconds:.0f} s")
    print_json({"seconds": seconds}, as_json)
