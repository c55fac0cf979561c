"""Reads a graph in another format, writes its tables and names the command to run."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pyarrow.types as pt

from xnq_dist.convert import FORMATS, Converted
from xnq_dist.convert.reading import printable, reading
from xnq_dist.core.errors import InputError, SettingsError

__all__ = ["convert", "format_of", "read_graph", "run_command"]

AUTO = "auto"
HEAD = 1 << 16
"""Bytes from which a format is recognised."""
LABELS = ("label", "y", "class", "target")
"""Names of a column of labels, the best first."""


def convert(
    source: str | Path, out: str | Path, form: str = AUTO, overwrite: bool = False
) -> Converted:
    """Write a graph as ``nodes.parquet`` and ``edges.parquet``.

    A graph with masks also gets ``splits.parquet``. Each file is complete or absent.

    Parameters
    ----------
    source
        File or folder of the graph.
    out
        Folder for the tables; created if it does not exist.
    form
        Name of the format, or ``auto``.
    overwrite
        Whether tables in the folder may be replaced.

    Raises
    ------
    InputError
        When the file is damaged or of another format, or the folder has tables.
    DoesNotFitError
        When the file needs more memory than is free.
    SettingsError
        When there is no format of this name.
    """
    folder = Path(out).expanduser()
    files = {name: folder / f"{name}.parquet" for name in ("nodes", "edges", "splits")}
    there = [str(file) for file in files.values() if file.exists()]
    if there and not overwrite:
        raise InputError(
            f"{there[0]} exists already: choose another folder, or --overwrite"
        )
    found = read_graph(source, form)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{out} cannot be created ({error.strerror}): choose another folder"
        ) from error
    for file in map(Path, there):
        file.unlink()
    for name, file in files.items():
        table = getattr(found, name)
        if table is not None:
            partial = file.with_name(f".{file.name}.partial")
            pq.write_table(table, partial, compression="zstd")
            partial.replace(file)
    return found


def read_graph(source: str | Path, form: str = AUTO) -> Converted:
    """Read a graph; parameters and errors as in `convert`."""
    path = Path(source).expanduser()
    if "://" in str(source):
        raise InputError(f"convert reads local files: copy {source} to this machine")
    if not path.exists():
        raise InputError(f"{source} does not exist: check the path")
    name = format_of(path) if form == AUTO else form
    try:
        record = FORMATS.record_of(name)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    with reading(path, record.title, record.hint), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, of headers that are damaged
        found: Converted = FORMATS.module_of(name).read(path)
    notes = (*found.notes, *open_questions(found))
    return replace(found, notes=tuple(map(printable, notes)))


def open_questions(found: Converted) -> Iterator[str]:
    """What the user must add before a run, or should check."""
    names = found.nodes.column_names
    label = _label(found)
    if label is None and len(names) > 1:
        yield (
            "no column is named label: set columns.label to the column of the classes "
            f"({', '.join(names[1:])})"
        )
    elif label is not None and label not in LABELS:
        yield (
            f"no column is named label: the classes are taken from {label!r}, the only "
            "column of text, unless you set another columns.label"
        )
    elif label is None or found.nodes[label].null_count == found.nodes.num_rows:
        yield "the file has no labels: add a column label to nodes.parquet"
    if found.directed is None:
        yield (
            "the file does not say whether edges have a direction: add --set "
            "input.directed=true if they have"
        )


def _label(found: Converted) -> str | None:
    """Name of the column of labels, else of the only column of text; None: unknown."""
    named = [name for name in LABELS if name in found.nodes.column_names]
    kinds = found.nodes.schema
    text = [field.name for field in kinds if pt.is_string(field.type)]
    others = [name for name in text if name != "node_id"]
    return next(iter(named), others[0] if len(others) == 1 else None)


def format_of(path: Path) -> str:
    """Name of the format that a file or folder looks like.

    Raises
    ------
    InputError
        When it looks like none.
    """
    with reading(path, "a file that can be read", "check its permissions"):
        head = b""
        if path.is_file():
            with path.open("rb") as stream:
                head = stream.read(HEAD)
        for name in FORMATS.records():
            if FORMATS.module_of(name).matches(path, head):
                return name
    known = ", ".join(FORMATS.records())
    raise InputError(
        f"{path} looks like none of the formats that are converted: name one of "
        f"{known} instead of auto, or write nodes and edges as CSV or Parquet, which "
        "`run` reads"
    )


def run_command(found: Converted, out: str | Path) -> str:
    """The `run` command for the tables in a folder."""
    folder = Path(out)
    words = ["xnq-dist", "run", "--nodes", str(folder / "nodes.parquet")]
    words += ["--edges", str(folder / "edges.parquet")]
    words += ["--out", f"{folder}-run"]
    for setting in _settings(found):
        words += ["--set", setting]
    return shlex.join(words)


def _settings(found: Converted) -> Iterator[str]:
    label = _label(found)
    if label is None and len(found.nodes.column_names) > 1:
        label = "NAME"
    if label not in ("label", None):
        yield f"columns.label={label}"
    if found.directed:
        yield "input.directed=true"
