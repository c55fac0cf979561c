"""What is known of the paper's graphs: tasks, public homes, hashes, counts, licences.

The graphs are in ``known_graphs.json``. Hashes were recorded from public records of
others who fetched the same files, named beside each; where nobody recorded one, there
is none, and a fetched file is checked by what it holds alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from xnq_dist.core.errors import SettingsError

__all__ = [
    "DATASETS",
    "Dataset",
    "Expected",
    "KnownTask",
    "RemoteFile",
    "Source",
    "dataset_of",
    "find",
    "has_features",
    "known_tasks",
]

VARIABLE = "XNQ_DATA_DIR"
"""Environment variable that names the folder of the graphs' folders."""

TABLES = ("nodes.parquet", "edges.parquet")


@dataclass(frozen=True)
class RemoteFile:
    """One file at a public home."""

    name: str
    url: str
    sha256: str | None = None
    """None: nobody recorded it."""
    size: int | None = None
    """Bytes; None: nobody recorded them."""
    members: tuple[str, ...] = ()
    """Paths inside a zip archive that are unpacked under their last names."""


@dataclass(frozen=True)
class Expected:
    """What a parsed graph must hold."""

    nodes: int
    edges: int
    """Directed rows."""
    features: int
    classes: int
    class_counts: tuple[int, ...] | None = None
    """Nodes of each class, where they are known."""
    share: float | None = None
    """Published prevalence of class 1, two decimals, where the counts are not."""


@dataclass(frozen=True)
class Source:
    """A public home of a graph and how its files are read."""

    name: str
    form: Literal["planetoid", "heterophilous", "linkx", "musae", "ptg", "graphsaint"]
    files: tuple[RemoteFile, ...]
    expected: Expected
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the form's reader."""
    note: str = ""
    """What to know before taking it."""

    @property
    def size(self) -> int | None:
        """Bytes of all files, None when one is not known."""
        sizes = [file.size for file in self.files]
        return None if None in sizes else sum(size or 0 for size in sizes)


@dataclass(frozen=True)
class Dataset:
    """A graph of the paper."""

    name: str
    """Also the name of its folder."""
    sources: tuple[Source, ...]
    """The first is fetched unless another is asked for."""
    licence: str
    licence_note: str
    differs: str
    """Where the files and the paper's print disagree."""
    splits: Mapping[str, int | None] = field(
        default_factory=lambda: {"splits.parquet": None}
    )
    """Files of folds to write, and the class set against the rest (None: all)."""

    def source(self, name: str | None) -> Source:
        """A source by name, the first without one."""
        if name is None:
            return self.sources[0]
        for source in self.sources:
            if source.name == name:
                return source
        raise SettingsError(
            f"{self.name} has no source {name!r}: choose one of "
            f"{', '.join(source.name for source in self.sources)}"
        )


@dataclass(frozen=True)
class KnownTask:
    """A task of the paper on one of its graphs."""

    name: str
    folder: str
    """Name of the graph's folder."""
    splits: str = "splits.parquet"
    """File of folds in the folder."""
    positive: str | None = None
    """Class set against the rest, None: the classes as they are."""


def _read(kind: type[Any], record: Mapping[str, Any]) -> Any:
    """A record of the registry with the dataclasses and tuples inside it."""
    inner = {"sources": Source, "files": RemoteFile}
    values: dict[str, Any] = {}
    for name, value in record.items():
        if name in inner:
            values[name] = tuple(_read(inner[name], one) for one in value)
        elif name == "expected":
            values[name] = _read(Expected, value)
        elif name != "hashes":  # where they are from, for readers of the file
            values[name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)


DATASETS: Mapping[str, Dataset] = {
    record["name"]: _read(Dataset, record)
    for record in json.loads(
        Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
    )
}
"""The graphs by name."""

_TASKS = (
    KnownTask("cora-2", "cora", positive="2"),
    KnownTask("cora-multi", "cora", "splits_multiclass.parquet"),
    *(
        KnownTask(name, name)
        for name in (
            *("genius", "questions", "tolokers"),
            *("twitch-de", "amazon-ratings", "flickr"),
        )
    ),
)


def known_tasks() -> dict[str, KnownTask]:
    """The paper's eight tasks by name, in its order.

    In a binary task without `positive` the class 1 is the positive one.
    """
    return {task.name: task for task in _TASKS}


def dataset_of(name: str) -> Dataset:
    """The graph of a task or folder name.

    Raises
    ------
    SettingsError
        Naming the known ones.
    """
    task = known_tasks().get(name)
    try:
        return DATASETS[task.folder if task else name]
    except KeyError:
        raise SettingsError(
            f"there is no graph {name!r}: choose one of {', '.join(known_tasks())}"
        ) from None


def find(name: str, root: Path | None = None) -> Path | None:
    """The folder of a graph on this machine; None unless it holds nodes and edges.

    Parameters
    ----------
    name
        Task or folder name of one of the paper's graphs.
    root
        Folder of the graphs' folders; None: what ``XNQ_DATA_DIR`` names.
    """
    dataset = dataset_of(name)
    named = os.environ.get(VARIABLE)
    if root is None and not named:
        return None
    folder = Path(root or named or ".").expanduser() / dataset.name
    return folder if all((folder / table).is_file() for table in TABLES) else None


def has_features(folder: Path) -> bool:
    """Whether a graph's node table has input features."""
    import pyarrow.parquet as pq

    return "features" in pq.read_schema(folder / "nodes.parquet").names
