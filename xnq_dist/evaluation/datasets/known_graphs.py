"""Registry of the paper's graphs: tasks, download sources, hashes, counts, licences.

The graphs are in ``known_graphs.json``. Hashes are from public records of others who
downloaded the same files (key ``hashes``). A file without a recorded hash is checked by
its contents only.
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
"""Environment variable that names the parent folder of the graphs' folders."""

TABLES = ("nodes.parquet", "edges.parquet")


@dataclass(frozen=True)
class RemoteFile:
    """One file of a download source."""

    name: str
    url: str
    sha256: str | None = None
    """None: not recorded."""
    size: int | None = None
    """Bytes; None: not recorded."""
    members: tuple[str, ...] = ()
    """Paths inside a zip archive that are unpacked, without their folders."""


@dataclass(frozen=True)
class Expected:
    """Counts that a parsed graph must have."""

    nodes: int
    edges: int
    """Number of directed edges (rows)."""
    features: int
    classes: int
    class_counts: tuple[int, ...] | None = None
    """Number of nodes of each class, if known."""
    share: float | None = None
    """Published prevalence of class 1, two decimals, if class counts are unknown."""


@dataclass(frozen=True)
class Source:
    """A download source of a graph, and how its files are read."""

    name: str
    form: Literal["planetoid", "heterophilous", "linkx", "musae", "ptg", "graphsaint"]
    files: tuple[RemoteFile, ...]
    expected: Expected
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the format's reader."""
    note: str = ""
    """Remark for the user."""

    @property
    def size(self) -> int | None:
        """Bytes of all files; None if one is unknown."""
        sizes = [file.size for file in self.files]
        return None if None in sizes else sum(size or 0 for size in sizes)


@dataclass(frozen=True)
class Dataset:
    """A graph of the paper."""

    name: str
    """Name of the graph and of its folder."""
    sources: tuple[Source, ...]
    """Download sources; the first is the default."""
    licence: str
    licence_note: str
    differs: str
    """Differences between the files and the paper's table."""
    splits: Mapping[str, int | None] = field(
        default_factory=lambda: {"splits.parquet": None}
    )
    """Files of folds, and the class evaluated against all others (None: all)."""

    def source(self, name: str | None) -> Source:
        """A source by name; the first if `name` is None."""
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
    """Class that is evaluated against all others; None: all classes."""


def _read(kind: type[Any], record: Mapping[str, Any]) -> Any:
    """Make a dataclass, and those inside it, from a record of the registry."""
    inner = {"sources": Source, "files": RemoteFile}
    values: dict[str, Any] = {}
    for name, value in record.items():
        if name in inner:
            values[name] = tuple(_read(inner[name], one) for one in value)
        elif name == "expected":
            values[name] = _read(Expected, value)
        elif name != "hashes":  # origin of the hashes, for readers of the file
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

    In a binary task without `positive`, class 1 is the positive class.
    """
    return {task.name: task for task in _TASKS}


def dataset_of(name: str) -> Dataset:
    """The graph of a task or folder name.

    Raises
    ------
    SettingsError
        When there is no such graph; the message lists the known tasks.
    """
    task = known_tasks().get(name)
    try:
        return DATASETS[task.folder if task else name]
    except KeyError:
        raise SettingsError(
            f"there is no graph {name!r}: choose one of {', '.join(known_tasks())}"
        ) from None


def find(name: str, root: Path | None = None) -> Path | None:
    """The folder of a graph on this machine; None unless it has nodes and edges.

    Parameters
    ----------
    name
        Task or folder name of one of the paper's graphs.
    root
        Parent folder of the graphs' folders; None: the value of ``XNQ_DATA_DIR``.
    """
    dataset = dataset_of(name)
    default = os.environ.get(VARIABLE)
    if root is None and not default:
        return None
    folder = Path(root or default or ".").expanduser() / dataset.name
    return folder if all((folder / table).is_file() for table in TABLES) else None


def has_features(folder: Path) -> bool:
    """Whether a graph's node table has input features."""
    import pyarrow.parquet as pq

    return "features" in pq.read_schema(folder / "nodes.parquet").names
