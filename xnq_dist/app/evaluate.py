"""Methods side by side on labelled graphs: search, selection, test, tables.

One stage a dataset and method. What is scored already is not scored again: the
units in the output folder decide that.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from xnq_dist import pipeline as line
from xnq_dist.core.cluster import Connection, connect, open_cluster
from xnq_dist.core.config import Settings
from xnq_dist.core.errors import InputError
from xnq_dist.core.lock import RunLock
from xnq_dist.core.progress import Progress
from xnq_dist.core.store import Folder, RunDirectory, setting_aside
from xnq_dist.graph.tables import Sources, open_table
from xnq_dist.jobs import Do

__all__ = [
    "DataSource",
    "find_data",
    "run_communities_evaluation",
    "run_evaluation",
]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DataSource:
    """A labelled graph to evaluate on."""

    name: str
    nodes: str
    edges: str
    splits: str | None
    """Table of folds; None: folds are made."""
    positive: str | None
    family: str | None = None
    """Graphs like it, left out together; None: itself only."""


def find_data(data: str, splits: str | None, positive: str | None) -> DataSource:
    """The graph of a folder, or by its name in ``XNQ_DATA_DIR``.

    Raises
    ------
    InputError
        When neither is there.
    """
    from xnq_dist.evaluation.datasets.families import family_of
    from xnq_dist.evaluation.datasets.known_graphs import VARIABLE, find, known_tasks

    known = known_tasks()
    folder = Path(data).expanduser()
    name = folder.absolute().name
    if data in known and not (folder / "nodes.parquet").exists():
        task = known[data]
        name = data
        found = find(task.folder)
        if found is None:
            raise InputError(
                f"the graph {data!r} is not here: fetch it (xnq-dist datasets fetch "
                f"{task.folder}), or set XNQ_DATA_DIR to the folder that holds "
                f"{task.folder}/"
            )
        folder = found
        splits = splits or task.splits
        positive = positive or task.positive
    elif not folder.exists() and (root := os.environ.get(VARIABLE)):
        # A graph of the data folder that is not one of the paper's.
        folder = next((f for f in [Path(root) / data] if f.is_dir()), folder)
    for table in ("nodes.parquet", "edges.parquet"):
        if not (folder / table).exists():
            raise InputError(
                f"--data {data}: {folder / table} is not there: name a folder with "
                "nodes.parquet and edges.parquet, or one of "
                f"{', '.join(known)}"
            )
    if splits is None:
        there = folder / "splits.parquet"
        chosen = str(there) if there.exists() else None
    else:
        # A name inside the folder, or a path of its own.
        inside = folder / splits
        chosen = str(inside if inside.exists() else Path(splits))
    return DataSource(
        name,
        str(folder / "nodes.parquet"),
        str(folder / "edges.parquet"),
        chosen,
        positive,
        family_of(name, folder),
    )


def _with_features(source: DataSource, settings: Settings) -> tuple[Settings, bool]:
    """Settings that do without features where the node table has none."""
    features = settings.columns.features
    if features is None:
        return settings, False
    table = open_table(source.nodes, "node table")
    names = [features] if isinstance(features, str) else features
    if any(table.has(name) for name in names) or "features" in (
        settings.columns.model_fields_set
    ):
        return settings, True
    log.info("%s: no features, the graph alone", source.name)
    columns = settings.columns.model_copy(update={"features": None})
    return settings.model_copy(update={"columns": columns}), False


def prepare_task(
    out: str,
    source: DataSource,
    settings: Settings,
    folds: Sequence[int] | None,
    label_shares: Sequence[float],
    progress: Progress,
) -> Any:
    """Graph, labels and folds of one dataset, where workers find them."""
    from xnq_dist.evaluation.task import TaskSource, load_task
    from xnq_dist.evaluation.work import EvaluationWork

    run = RunDirectory(out)
    sources = Sources(source.nodes, source.edges)
    line.prepare(run, sources, settings, progress)
    wanted = TaskSource(
        source.name,
        source.splits,
        source.positive,
        None if folds is None else tuple(folds),
        tuple(label_shares),
    )
    task = load_task(run, wanted, settings.seed)
    return EvaluationWork.begin(run, task, settings)


def evaluate_method(
    work: Any,
    name: str,
    draws: int,
    quantifiers: Sequence[str] | None,
    connection: Connection,
    progress: Progress,
) -> dict[str, Any]:
    """One method on one dataset: search, selection, test."""
    from xnq_dist.evaluation import on_workers as stage
    from xnq_dist.evaluation.keep import keep
    from xnq_dist.evaluation.methods.known_methods import METHODS

    began = time.perf_counter()
    with connect(connection, work.settings.cluster.timeout) as client:
        result = stage.evaluate_method(
            client, work, METHODS[name], draws, quantifiers, progress
        )
    keep(Folder.of(work.run), work.task(), result)
    return {"method": name, "seconds": round(time.perf_counter() - began, 1)}


def publish_evaluation(out: str, _progress: Progress) -> dict[str, Any]:
    """Tables, plots and page of everything kept in the folder."""
    from xnq_dist.evaluation.keep import publish_tables
    from xnq_dist.evaluation.render import render
    from xnq_dist.evaluation.summary import text

    folder = Folder.of(out)
    datasets = [
        folder.child(name)
        for name in folder.names()
        if folder.child(name).child("results").exists()
    ]
    tables = publish_tables(folder, datasets)
    render(tables["results"], tables["configurations"], tables["estimates"], folder)
    rows = {name: table.num_rows for name, table in tables.items()}
    return {"rows": rows, "text": text(tables["results"])}


def run_evaluation(
    sources: list[DataSource],
    out: str,
    methods: list[str],
    settings: Settings,
    draws: int,
    quantifiers: list[str] | None,
    folds: list[int] | None,
    label_shares: list[float],
    do: Do,
) -> dict[str, Any]:
    """Every method on every dataset, in this process.

    Parameters
    ----------
    do
        Does each stage.
    """
    from xnq_dist.evaluation.keep import unpublish
    from xnq_dist.evaluation.methods.known_methods import choose_methods

    began = time.perf_counter()
    folder = Folder.of(out)
    done = []
    chosen = {}
    for source in sources:
        suited, has_features = _with_features(source, settings)
        choose_methods(methods, has_features)
        chosen[source.name] = suited
    folder.create()
    with RunLock(folder), open_cluster(settings.cluster) as connection:
        unpublish(folder)
        for source in sources:
            suited = chosen[source.name]
            tables = Sources(source.nodes, source.edges)
            where = folder.child(source.name).location
            with line.open_run(where, tables) as run, setting_aside(run):
                prepared = partial(
                    prepare_task, run.location, source, suited, folds, label_shares
                )
                work = do("graph", prepared)
                for name in methods:
                    evaluated = partial(
                        evaluate_method, work, name, draws, quantifiers, connection
                    )
                    found = do(source.name, evaluated)
                    done.append({"dataset": source.name, **found})
        published = do("publish", partial(publish_evaluation, folder.location))
    return {
        "out": folder.uri,
        "results": folder.uri_of("results.parquet"),
        "page": folder.uri_of("evaluation.html"),
        **published,
        "done": done,
        "seconds": round(time.perf_counter() - began, 1),
    }


def evaluate_on_communities(
    work: Any, plan: Any, connection: Connection, progress: Progress
) -> dict[str, Any]:
    """Every estimator on every kind of communities of one dataset."""
    from xnq_dist.evaluation.community_cases import evaluate_communities
    from xnq_dist.evaluation.keep import keep_communities

    began = time.perf_counter()
    with connect(connection, work.settings.cluster.timeout) as client:
        table = evaluate_communities(client, work, plan, progress)
    keep_communities(Folder.of(work.run), table)
    return {"rows": table.num_rows, "seconds": round(time.perf_counter() - began, 1)}


def publish_communities_evaluation(out: str, _progress: Progress) -> dict[str, Any]:
    """Tables and page of everything kept in the folder."""
    from xnq_dist.evaluation.community_tables import community_text
    from xnq_dist.evaluation.keep import publish_communities

    table = publish_communities(Folder.of(out))
    return {"rows": table.num_rows, "text": community_text(table)}


def run_communities_evaluation(
    sources: list[DataSource],
    out: str,
    kinds: list[str],
    designs: list[str],
    settings: Settings,
    quantifiers: list[str] | None,
    label_shares: list[float],
    do: Do,
    undeclared: bool = False,
) -> dict[str, Any]:
    """Every quantifier on real communities of every dataset, in this process.

    Parameters
    ----------
    do
        Does each stage.
    undeclared
        Whether `labels.drawn` is unknown for every design.
    """
    from xnq_dist.evaluation.community_cases import CasePlan, check_plan, check_shares
    from xnq_dist.evaluation.keep import unpublish_communities

    began = time.perf_counter()
    folder = Folder.of(out)
    done = []
    check_shares(label_shares)
    given = [Path(source.nodes).parent / "memberships.parquet" for source in sources]
    memberships = [str(path) if path.exists() else None for path in given]
    check_plan(kinds, designs, quantifiers, memberships)
    chosen = {}
    for source, table in zip(sources, memberships, strict=True):
        suited, _ = _with_features(source, settings)
        plan = CasePlan(
            tuple(kinds),
            tuple(label_shares),
            tuple(designs),
            None if quantifiers is None else tuple(quantifiers),
            table,
            source.family,
            undeclared,
        )
        chosen[source.name] = suited, plan
    folder.create()
    with RunLock(folder), open_cluster(settings.cluster) as connection:
        unpublish_communities(folder)
        for source in sources:
            suited, plan = chosen[source.name]
            tables = Sources(source.nodes, source.edges)
            where = folder.child(source.name).location
            with line.open_run(where, tables) as run, setting_aside(run):
                prepared = partial(
                    prepare_task, run.location, source, suited, None, [1.0]
                )
                work = do("graph", prepared)
                evaluated = partial(evaluate_on_communities, work, plan, connection)
                found = do(source.name, evaluated)
                done.append({"dataset": source.name, **found})
        published = do(
            "publish", partial(publish_communities_evaluation, folder.location)
        )
    return {
        "out": folder.uri,
        "results": folder.uri_of("community_results.parquet"),
        "page": folder.uri_of("communities.html"),
        **published,
        "done": done,
        "seconds": round(time.perf_counter() - began, 1),
    }
