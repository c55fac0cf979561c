"""The commands ``status`` and ``doctor``: a run directory, and this machine."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from xnq_dist.app.output import Directory, Json, begin, print_json
from xnq_dist.core.redaction import redacted

__all__ = ["doctor", "status"]


def status(directory: Directory, as_json: Json = False) -> None:
    """Show where a run stands: stage, superstep, owner, what is next.

    It works while a run writes the directory, and never takes its lock.
    """
    from xnq_dist.core.failures import OPEN, stage_errors
    from xnq_dist.monitor.status import standing

    with stage_errors(str(redacted(directory)), OPEN):
        found = standing(directory)
    typer.echo(f"{found['run']}: {found['state']}")
    texts = {
        "stage": found.get("place"),
        "process": "pid" in found
        and f"{found['pid']} on {found['host']}, "
        f"last heartbeat {found['heartbeat_age']:.0f} s ago",
        "failed": found.get("message"),
        "next": found["next"],
        "started": _time(found.get("started")),
        "ended": _time(found.get("ended")),
        "results": "published" in found and f"{found['published']}  {found['report']}",
    }
    for name, text in texts.items():
        if text:
            typer.echo(f"  {name:<10}{text}")
    print_json(found)


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


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
    as_json: Json = False,
) -> None:
    """Check this machine and a run directory; name each fault with its fix.

    Of a run directory: how the last run ended, damaged files, and what the next run
    makes. Exit status 1 if there is a fault; notes are for your information. With
    --verify, every byte is compared with its checksum, and nothing else is checked.
    """
    begin("compiling the kernels" if kernels else "checking this machine")
    if kernels:
        from xnq_dist.app.compiled import compile_kernels

        seconds = round(compile_kernels(), 1)
        typer.echo(f"  compiled in {seconds:.0f} s")
        print_json({"seconds": seconds})
        return
    from xnq_dist.app.checks import examine, files

    checks = [files(directory)] if verify else examine(directory, address)
    for check in checks:
        typer.echo(f"  {check.state:<6}{check.name:<22}{check.text}")
    print_json({check.name: [check.state, check.text] for check in checks})
    if any(check.state == "fault" for check in checks):
        raise typer.Exit(1)
