"""The command ``xnq-dist datasets``: list the paper's graphs and download one."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from xnq_dist.app.output import Json, print_json

__all__ = ["app"]

app = typer.Typer(
    name="datasets",
    help="List and download the graphs of the paper.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.command("list")
def list_datasets(as_json: Json = False) -> None:
    """List every task of the paper: size, licence and folder on this machine."""
    from xnq_dist.evaluation.datasets.known_graphs import known_tasks
    from xnq_dist.evaluation.rendered_table import aligned

    rows = [_row(name) for name in known_tasks()]
    lines = [tuple(rows[0]), *(tuple(map(str, row.values())) for row in rows)]
    typer.echo("\n".join(aligned(lines, "l" * len(rows[0]))))
    print_json({row["name"]: row for row in rows}, as_json)


def _row(task: str) -> dict[str, Any]:
    from xnq_dist.evaluation.datasets.known_graphs import dataset_of, find, known_tasks

    dataset = dataset_of(task)
    first = dataset.sources[0]
    expected = first.expected
    classes = 2 if known_tasks()[task].positive is not None else expected.classes
    return {
        "name": task,
        "nodes": f"{expected.nodes:,}",
        "edges": f"{expected.edges:,}",
        "features": f"{expected.features:,}",
        "classes": classes,
        "download": "not known" if first.size is None else f"{first.size / 1e6:.1f} MB",
        "licence": dataset.licence,
        "found": str(find(task) or "no"),
    }


@app.command("fetch")
def fetch_dataset(
    name: Annotated[str, typer.Argument(help="A name that `datasets list` shows.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Parent folder for the graph's folder; default: XNQ_DATA_DIR."
        ),
    ] = None,
    raw: Annotated[
        Path | None,
        typer.Option("--from", help="Folder with raw files downloaded earlier."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(help="Name of the download source; default: the first."),
    ] = None,
    sha256: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[FILE=]HASH",
            help="SHA-256 hash that a file must have; may be repeated.",
        ),
    ] = None,
    mirror: Annotated[
        str | None, typer.Option(help="Address of a mirror of the same files.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing folder.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Download one graph, check it and convert it to the tables that `run` reads."""
    from xnq_dist.app.run_progress import console_progress, current_watch
    from xnq_dist.core.errors import SettingsError
    from xnq_dist.evaluation.datasets.fetch import fetch
    from xnq_dist.evaluation.datasets.known_graphs import (
        VARIABLE,
        dataset_of,
        has_features,
    )

    default = os.environ.get(VARIABLE)
    if out is None and not default:
        raise SettingsError(f"no folder to write to: give --out, or set {VARIABLE}")
    dataset = dataset_of(name)
    root = (out or Path(default or ".")).expanduser()
    with console_progress():
        done = fetch(
            name,
            root,
            None if raw is None else raw.expanduser(),
            source,
            _hashes(sha256 or [], [f.name for f in dataset.source(source).files]),
            mirror,
            overwrite,
            progress=current_watch().step,
        )
    if not done.files:
        bare = "" if has_features(done.folder) else ", without features"
        typer.echo(
            f"{done.name} exists already{bare}: {done.folder} (--overwrite replaces it)"
        )
    else:
        typer.echo(
            f"{done.name}: {done.counts['num_nodes']:,} nodes, "
            f"{done.counts['num_edges_directed_rows']:,} directed edges, "
            f"{done.counts['num_features']:,} features in {done.folder}\n"
            f"  licence  {dataset.licence} ({dataset.licence_note})"
        )
    for file in done.unpinned:
        typer.echo(
            f"  no hash is recorded for {file.name}; its contents were checked. To "
            "require the same file the next time, add\n"
            f"    --sha256 {file.name}={file.sha256}"
        )
    print_json(asdict(done), as_json)


def _hashes(texts: list[str], names: list[str]) -> dict[str, str]:
    """Hashes by file from ``FILE=HASH`` texts; a single file's name may be omitted."""
    from xnq_dist.core.errors import SettingsError

    hashes: dict[str, str] = {}
    for text in texts:
        name, equals, digest = text.rpartition("=")
        if not equals:
            if len(names) != 1:
                raise SettingsError(
                    f"--sha256 {text} names no file: write "
                    f"FILE=HASH with one of {', '.join(names)}"
                )
            name = names[0]
        hashes[name] = digest
    return hashes
