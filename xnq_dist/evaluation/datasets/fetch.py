"""A graph of the paper into a folder: fetched, read, checked, written, renamed."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist._version import __version__
from xnq_dist.core.errors import InputError, RunDirectoryError, SettingsError
from xnq_dist.core.progress import Progress, silent
from xnq_dist.evaluation.datasets.download import (
    RawFile,
    check_url,
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


@dataclass(frozen=True)
class Fetched:
    """A graph that is now on this machine."""

    name: str
    folder: Path
    source: str
    files: tuple[RawFile, ...]
    """What was read; empty when the folder was there before."""
    counts: dict[str, Any]

    @property
    def unpinned(self) -> tuple[RawFile, ...]:
        """Files that no recorded hash was there for."""
        return tuple(file for file in self.files if not file.pinned)


def fetch(
    name: str,
    root: Path,
    raw: Path | None = None,
    source: str | None = None,
    sha256: Mapping[str, str] | None = None,
    mirror: str | None = None,
    overwrite: bool = False,
    timeout: float = 60.0,
    progress: Progress = silent,
) -> Fetched:
    """Make the folder of one of the paper's graphs.

    It has ``nodes.parquet``, ``edges.parquet``, ``splits.parquet`` and ``meta.json``,
    and appears under its name only when all of it is written.

    Parameters
    ----------
    name
        Task or folder name.
    root
        Folder that the graph's folder is made in.
    raw
        Folder with raw files that are already here; None: they are downloaded.
    source
        Which public home; None: the first (or, with `raw`, the first whose files are
        all there).
    sha256
        Hashes by file name, for files that none is recorded for.
    mirror
        Address under which files of the same names lie.
    overwrite
        Make a folder anew that is there already.
    timeout
        Seconds without a byte after which a download is given up.
    """
    dataset = dataset_of(name)
    named = dataset.source(source)
    chosen = named if raw is None else _source_in(raw, dataset, source)
    chosen = _pinned(chosen, sha256 or {})
    if mirror is not None:
        check_url(mirror)
    target = root / dataset.name
    there = find(dataset.name, root)
    if there is not None and not overwrite:
        log.info("%s is there: %s", dataset.name, there)
        return Fetched(dataset.name, there, "", (), _recorded(there))
    if chosen.note:
        log.info("%s from %s: %s", dataset.name, chosen.name, chosen.note)
    work = root / f".{dataset.name}-{uuid.uuid4().hex[:8]}"
    try:
        files_folder, made = work / "raw", work / "made"
        _make(files_folder, made)
        if raw is None:
            files = [
                download(file, files_folder, mirror, timeout, progress)
                for file in chosen.files
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
                f"{folder} cannot be made ({error.strerror or error}): choose another "
                "folder with --out"
            ) from error


def _put(made: Path, target: Path) -> None:
    """The finished folder under its name, an older one out of the way first."""
    old = made.with_name("old")
    try:
        if target.exists():
            target.rename(old)
        made.rename(target)
    except OSError as error:
        if old.exists():
            old.rename(target)
        raise RunDirectoryError(
            f"{target} cannot be written ({error.strerror or error}): choose another "
            "folder with --out"
        ) from error


def _recorded(folder: Path) -> dict[str, Any]:
    """The counts of a folder's record, empty when it has none."""
    try:
        found = json.loads((folder / "meta.json").read_text("utf-8"))
    except (OSError, ValueError):  # a folder made elsewhere
        return {}
    return found if isinstance(found, dict) else {}


def _pinned(source: Source, given: Mapping[str, str]) -> Source:
    """The source with the user's hashes where none is recorded."""
    files = {file.name: file for file in source.files}
    for name, digest in given.items():
        if name not in files:
            raise SettingsError(
                f"--sha256 names {name!r}, which is no file of the source "
                f"{source.name!r} ({', '.join(files)})"
            )
        if not re.fullmatch("[0-9a-f]{64}", digest.lower()):
            raise SettingsError(f"{digest!r} is not a sha256 of 64 hexadecimal digits")
        recorded = files[name].sha256
        if recorded not in (None, digest.lower()):
            raise SettingsError(
                f"--sha256 gives {digest} for {name}, but {recorded} is recorded"
            )
        files[name] = dataclasses.replace(files[name], sha256=digest.lower())
    return dataclasses.replace(source, files=tuple(files.values()))


def _local(raw: Path, source: Source) -> list[tuple[Any, Path]] | None:
    """The source's files in a folder, archives whole or unpacked; None: not all."""
    found: list[tuple[Any, Path]] = []
    for file in source.files:
        parts = [raw / member.rsplit("/", 1)[-1] for member in file.members]
        if (raw / file.name).is_file():
            found.append((file, raw / file.name))
        elif parts and all(part.is_file() for part in parts):
            found += [(file, part) for part in parts]
        else:
            return None
    return found


def _source_in(raw: Path, dataset: Dataset, name: str | None) -> Source:
    """The named source, or the first whose files are all in the folder."""
    candidates = dataset.sources if name is None else (dataset.source(name),)
    for source in candidates:
        if _local(raw, source) is not None:
            return source
    needed = "; or ".join(
        ", ".join(file.name for file in source.files) for source in candidates
    )
    raise InputError(f"{raw} does not hold the files of {dataset.name}: {needed}")


def _take_all(raw: Path, source: Source, folder: Path) -> list[RawFile]:
    return [take(file, path, folder) for file, path in _local(raw, source) or ()]


def _write(
    dataset: Dataset, source: Source, files: list[RawFile], raw: Path, made: Path
) -> dict[str, Any]:
    """Read, check and write; the record last."""
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
    """Refuse a graph that does not hold what the paper's holds.

    Raises
    ------
    InputError
        With both numbers.
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
        found = tuple(counts.tolist())
        pairs.append(("nodes of each class", found, expected.class_counts))
    if expected.share is not None:
        share = round(float(np.mean(labels[labels >= 0] == 1)), 2)
        pairs.append(("prevalence of class 1", share, expected.share))
    for what, there, should in pairs:
        if there != should:
            raise InputError(
                f"{name}: {what}: {_shown(there)} in the files, {_shown(should)} in "
                "the paper's graph: these are other files"
            )
    if not np.isfinite(graph.features).all():
        raise InputError(f"{name}: a feature is not finite: these are other files")


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def describe(graph: RawGraph) -> dict[str, Any]:
    """Counts of a graph, for its record."""
    nodes, edges = len(graph.labels), graph.edges
    keys, times = np.unique(edges[:, 0] * nodes + edges[:, 1], return_counts=True)
    sources, targets = np.divmod(keys, nodes)
    proper = sources != targets
    low = np.minimum(sources, targets)[proper]
    high = np.maximum(sources, targets)[proper]
    back = np.sort(targets * nodes + sources)
    known = graph.labels[graph.labels >= 0]
    classes, sizes = np.unique(known, return_counts=True)
    touched: NDArray[np.bool_] = np.zeros(nodes, np.bool_)
    touched[edges.reshape(-1)] = True
    return {
        "num_nodes": nodes,
        "num_edges_directed_rows": len(edges),
        "num_undirected_edges_no_self_loops": len(np.unique(low * nodes + high)),
        "num_self_loops": int(np.sum(~proper)),
        "num_duplicate_directed_rows": int(np.sum(times - 1)),
        "symmetric": bool(np.array_equal(keys, back)),
        "num_isolated_nodes": int(np.sum(~touched)),
        "num_unlabelled": nodes - len(known),
        "num_features": int(graph.features.shape[1]),
        "num_classes": len(classes),
        "class_counts": {
            str(label): int(size) for label, size in zip(classes, sizes, strict=True)
        },
    }
