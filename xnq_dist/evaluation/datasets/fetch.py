"""Download of a graph of the paper: fetch, parse, check and write it to a folder."""

from __future__ import annotations

import json
import logging
import shutil
import uuid
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist._version import __version__
from xnq_dist.core.errors import InputError, RunDirectoryError
from xnq_dist.core.progress import Progress, silent
from xnq_dist.evaluation.datasets.download import (
    RawFile,
    download,
    take,
    unpack,
)
from xnq_dist.evaluation.datasets.graph_folder import (
    write_edges,
    write_nodes,
    write_splits,
)
from xnq_dist.evaluation.datasets.graphs import RawGraph
from xnq_dist.evaluation.datasets.known_graphs import (
    Dataset,
    Expected,
    Source,
    dataset_of,
    find,
)
from xnq_dist.evaluation.datasets.test_folds import PAPER_SEED, make_folds

__all__ = ["Fetched", "check_graph", "describe", "fetch"]

log = logging.getLogger(__name__)

RAW = "raw"
"""Folder, next to the graphs' folders, for raw files that were downloaded by hand."""


@dataclass(frozen=True)
class Fetched:
    """Result of `fetch`."""

    name: str
    folder: Path
    source: str
    files: tuple[RawFile, ...]
    """Raw files that were read; empty if the folder existed before."""
    counts: dict[str, Any]

    @property
    def unpinned(self) -> tuple[RawFile, ...]:
        """Files without a recorded hash."""
        return tuple(file for file in self.files if not file.pinned)


def fetch(
    name: str,
    root: Path,
    raw: Path | None = None,
    source: str | None = None,
    timeout: float = 60.0,
    progress: Progress = silent,
) -> Fetched:
    """Make the folder of one of the paper's graphs.

    The folder has ``nodes.parquet``, ``edges.parquet``, ``splits.parquet`` and
    ``meta.json``, and gets its name only when all files are written.

    Parameters
    ----------
    name
        Task or folder name.
    root
        Parent folder of the graph's folder.
    raw
        Folder with raw files downloaded earlier; None: ``raw`` in `root` if it exists,
        else they are downloaded.
    source
        Name of the download source; None: the first (or, with `raw`, the first whose
        files are all in that folder).
    timeout
        Seconds without data after which a download is aborted.
    """
    dataset = dataset_of(name)
    named = dataset.source(source)
    if raw is None and _local(root / RAW, named) is not None:
        raw = root / RAW
    chosen = named if raw is None else _source_in(raw, dataset, source)
    target = root / dataset.name
    existing = find(dataset.name, root)
    if existing is not None:
        log.info("%s exists already: %s", dataset.name, existing)
        return Fetched(dataset.name, existing, "", (), _recorded(existing))
    if chosen.note:
        log.info("%s from %s: %s", dataset.name, chosen.name, chosen.note)
    work = root / f".{dataset.name}-{uuid.uuid4().hex[:8]}"
    try:
        files_folder, made = work / "raw", work / "made"
        _make(files_folder, made)
        if raw is None:
            files = [
                download(file, files_folder, timeout, progress) for file in chosen.files
            ]
        else:
            files = _take_all(raw, chosen, files_folder)
        for file in chosen.files:
            if file.members and (files_folder / file.name).exists():
                unpack(files_folder / file.name, file.members, files_folder)
        counts = _write(dataset, chosen, files, files_folder, made)
        _put(made, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return Fetched(dataset.name, target, chosen.name, tuple(files), counts)


def _make(*folders: Path) -> None:
    for folder in folders:
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise RunDirectoryError(
                f"{folder} cannot be created ({error.strerror or error}): choose "
                "another folder with XNQ_DATA_DIR"
            ) from error


def _put(made: Path, target: Path) -> None:
    """Rename the finished folder to its name."""
    try:
        made.rename(target)
    except OSError as error:
        raise RunDirectoryError(
            f"{target} cannot be written ({error.strerror or error}): choose another "
            "folder with XNQ_DATA_DIR"
        ) from error


def _recorded(folder: Path) -> dict[str, Any]:
    """The counts in a folder's meta.json; empty if it has none."""
    try:
        record = json.loads((folder / "meta.json").read_text("utf-8"))
    except (OSError, ValueError):  # not written by this module
        return {}
    return record if isinstance(record, dict) else {}


def _local(raw: Path, source: Source) -> list[tuple[Any, Path]] | None:
    """Paths of the source's files in a folder; None if not all exist.

    An archive may be in the folder itself or unpacked.
    """
    paths: list[tuple[Any, Path]] = []
    for file in source.files:
        parts = [raw / member.rsplit("/", 1)[-1] for member in file.members]
        if (raw / file.name).is_file():
            paths.append((file, raw / file.name))
        elif parts and all(part.is_file() for part in parts):
            paths += [(file, part) for part in parts]
        else:
            return None
    return paths


def _source_in(raw: Path, dataset: Dataset, name: str | None) -> Source:
    """The named source, or the first whose files are all in the folder."""
    candidates = dataset.sources if name is None else (dataset.source(name),)
    for source in candidates:
        if _local(raw, source) is not None:
            return source
    needed = "; or ".join(
        ", ".join(file.name for file in source.files) for source in candidates
    )
    raise InputError(f"{raw} does not have the files of {dataset.name}: add {needed}")


def _take_all(raw: Path, source: Source, folder: Path) -> list[RawFile]:
    return [take(file, path, folder) for file, path in _local(raw, source) or ()]


def _write(
    dataset: Dataset, source: Source, files: list[RawFile], raw: Path, made: Path
) -> dict[str, Any]:
    """Parse, check and write the graph; return its counts."""
    from xnq_dist.evaluation.datasets.parsers import parse

    names = [file.name for file in source.files]
    graph = parse(source.form, raw, names, source.options)
    check_graph(graph, source.expected, dataset.name)
    write_nodes(graph, made / "nodes.parquet")
    write_edges(graph.edges, made / "edges.parquet")
    for name, positive in dataset.splits.items():
        codes = graph.labels.astype(np.int32)
        if positive is not None:
            codes = np.where(codes < 0, codes, codes == positive).astype(np.int32)
        write_splits(make_folds(codes), made / name)
    counts = describe(graph)
    record = counts | {
        "name": dataset.name,
        **graph.facts,
        "source": {
            "home": source.name,
            "note": source.note,
            "files": [asdict(file) for file in files],
        },
        "licence": dataset.licence,
        "licence_note": dataset.licence_note,
        "differs_from_paper_table": dataset.differs,
        "splits": {
            "files": dict(dataset.splits),
            "seed": PAPER_SEED,
            "how": "five stratified test folds; of the rest 25 % validation and "
            "12.5 % calibration, stratified (scikit-learn, one seed throughout)",
        },
        "versions": {
            "xnq-dist": __version__,
            **{name: metadata.version(name) for name in ("numpy", "scikit-learn")},
        },
    }
    text = json.dumps(record, indent=1) + "\n"
    (made / "meta.json").write_text(text, encoding="utf-8")
    return counts


def check_graph(graph: RawGraph, expected: Expected, name: str) -> None:
    """Check that a graph has the same counts as in the paper.

    Raises
    ------
    InputError
        When a count differs or a feature is not finite.
    """
    labels = graph.labels
    counts = np.bincount(labels[labels >= 0])
    pairs: list[tuple[str, Any, Any]] = [
        ("nodes", len(labels), expected.nodes),
        ("directed edges", len(graph.edges), expected.edges),
        ("features", graph.features.shape[1], expected.features),
        ("classes", len(np.flatnonzero(counts)), expected.classes),
    ]
    if expected.class_counts is not None:
        by_class = tuple(counts.tolist())
        pairs.append(("nodes of each class", by_class, expected.class_counts))
    if expected.share is not None:
        share = round(float(np.mean(labels[labels >= 0] == 1)), 2)
        pairs.append(("prevalence of class 1", share, expected.share))
    for what, actual, required in pairs:
        if actual != required:
            raise InputError(
                f"{name}: {what}: {_shown(actual)} in the files, {_shown(required)} in "
                "the paper's graph: download the original files again"
            )
    if not np.isfinite(graph.features).all():
        raise InputError(
            f"{name}: a feature is not finite: download the original files again"
        )


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def describe(graph: RawGraph) -> dict[str, Any]:
    """Counts of a graph for meta.json, by name."""
    nodes, edges = len(graph.labels), graph.edges
    keys, times = np.unique(edges[:, 0] * nodes + edges[:, 1], return_counts=True)
    sources, targets = np.divmod(keys, nodes)
    no_loop = sources != targets
    low = np.minimum(sources, targets)[no_loop]
    high = np.maximum(sources, targets)[no_loop]
    reversed_keys = np.sort(targets * nodes + sources)
    known = graph.labels[graph.labels >= 0]
    classes, sizes = np.unique(known, return_counts=True)
    has_edge: NDArray[np.bool_] = np.zeros(nodes, np.bool_)
    has_edge[edges.reshape(-1)] = True
    return {
        "num_nodes": nodes,
        "num_edges_directed_rows": len(edges),
        "num_undirected_edges_no_self_loops": len(np.unique(low * nodes + high)),
        "num_self_loops": int(np.sum(~no_loop)),
        "num_duplicate_directed_rows": int(np.sum(times - 1)),
        "symmetric": bool(np.array_equal(keys, reversed_keys)),
        "num_isolated_nodes": int(np.sum(~has_edge)),
        "num_unlabelled": nodes - len(known),
        "num_features": int(graph.features.shape[1]),
        "num_classes": len(classes),
        "class_counts": {
            str(label): int(size) for label, size in zip(classes, sizes, strict=True)
        },
    }
