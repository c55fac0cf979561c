"""Methods side by side on labelled graphs: search, selection, test, tables.

One Prefect task a dataset and method. What is scored already is not scored again: the
units in the output folder decide that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.states import Failed

from flows.parameters import given, run_flow
from flows.pipeline import client_of, connected, stage_task, value_of
from flows.progress import StageProgress
from xnq_dist import pipeline as line
from xnq_dist.cluster import open_cluster
from xnq_dist.config import Settings
from xnq_dist.errors import InputError, XnqError
from xnq_dist.graph.tables import Sources, open_table
from xnq_dist.lock import RunLock
from xnq_dist.store import Folder, RunDirectory

__all__ = [
    "DataSource",
    "communities_evaluation",
    "evaluation",
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


def find_data(data: str, splits: str | None, positive: str | None) -> DataSource:
    """The graph of a folder, or of a known name in ``XNQ_DATA_DIR``.

    Raises
    ------
    InputError
        When neither is there.
    """
    from xnq_dist.datasets.registry import find, known_tasks

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


@stage_task
def prepare_task(
    out: str,
    source: DataSource,
    settings: Settings,
    folds: Sequence[int] | None,
    label_shares: Sequence[float],
) -> Any:
    """Graph, labels and folds of one dataset, where workers find them."""
    from xnq_dist.evaluation.task import TaskSource, load_task
    from xnq_dist.evaluation.work import Work

    run = RunDirectory(out)
    sources = Sources(source.nodes, source.edges)
    manifest = line.prepare(run, sources, settings, StageProgress("graph"))
    wanted = TaskSource(
        source.name,
        source.splits,
        source.positive,
        None if folds is None else tuple(folds),
        tuple(label_shares),
    )
    task = load_task(run.stage("graph"), manifest, wanted, settings.seed)
    return Work.begin(run, task, settings)


@stage_task
def evaluate_method(
    work: Any,
    name: str,
    draws: int,
    quantifiers: Sequence[str] | None,
) -> dict[str, Any]:
    """One method on one dataset: search, selection, test."""
    from xnq_dist.evaluation import run as stage
    from xnq_dist.evaluation.keep import keep
    from xnq_dist.evaluation.methods import METHODS

    began = time.perf_counter()
    with client_of(work.settings) as client:
        progress = StageProgress(work.task().dataset)
        result = stage.evaluate_method(
            client, work, METHODS[name], draws, quantifiers, progress
        )
    keep(Folder.of(work.run), work.task(), result)
    return {"method": name, "seconds": round(time.perf_counter() - began, 1)}


@stage_task
def publish_evaluation(out: str) -> dict[str, Any]:
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


@flow(name="xnq-evaluate", persist_result=False, validate_parameters=False)
def evaluation(
    sources: list[DataSource],
    out: str,
    methods: list[str],
    settings: Settings,
    draws: int,
    quantifiers: list[str] | None,
    folds: list[int] | None,
    label_shares: list[float],
) -> Any:
    """Every method on every dataset."""
    from xnq_dist.evaluation.keep import unpublish
    from xnq_dist.evaluation.methods import choose_methods

    began = time.perf_counter()
    out, settings = given(out=out, settings=settings)
    folder = Folder.of(out)
    done = []
    try:
        chosen = {}
        for source in sources:
            suited, has_features = _with_features(source, settings)
            choose_methods(methods, has_features)
            chosen[source.name] = suited
        folder.create()
        with (
            RunLock(folder),
            open_cluster(settings.cluster) as connection,
            connected(connection),
        ):
            unpublish(folder)
            for source in sources:
                suited = chosen[source.name]
                tables = Sources(source.nodes, source.edges)
                where = folder.child(source.name).location
                with line.open_run(where, tables) as run:
                    work = value_of(
                        prepare_task(
                            run.folder.location,
                            source,
                            suited,
                            folds,
                            label_shares,
                            return_state=True,
                        )
                    )
                    for name in methods:
                        state = evaluate_method(
                            work, name, draws, quantifiers, return_state=True
                        )
                        done.append({"dataset": source.name, **value_of(state)})
            published = value_of(publish_evaluation(folder.location, return_state=True))
        return {
            "out": folder.uri,
            "results": f"{folder.uri}/results.parquet",
            "page": f"{folder.uri}/evaluation.html",
            **published,
            "done": done,
            "seconds": round(time.perf_counter() - began, 1),
        }
    except XnqError as error:
        return Failed(message=str(error), data=error)


def run_evaluation(**arguments: Any) -> dict[str, Any]:
    """Run the flow here and now; raises what a stage raised."""
    return run_flow(evaluation, **arguments)


@stage_task
def evaluate_on_communities(work: Any, plan: Any) -> dict[str, Any]:
    """Every estimator on every family of communities of one dataset."""
    from xnq_dist.evaluation.communities import evaluate_communities
    from xnq_dist.evaluation.keep import keep_communities

    began = time.perf_counter()
    with client_of(work.settings) as client:
        progress = StageProgress(work.task().dataset)
        table = evaluate_communities(client, work, plan, progress)
    keep_communities(Folder.of(work.run), table)
    return {"rows": table.num_rows, "seconds": round(time.perf_counter() - began, 1)}


@stage_task
def publish_communities_evaluation(out: str) -> dict[str, Any]:
    """Tables and page of everything kept in the folder."""
    from xnq_dist.evaluation.community_tables import community_text
    from xnq_dist.evaluation.keep import publish_communities

    table = publish_communities(Folder.of(out))
    return {"rows": table.num_rows, "text": community_text(table)}


@flow(name="xnq-evaluate-communities", persist_result=False, validate_parameters=False)
def communities_evaluation(
    sources: list[DataSource],
    out: str,
    families: list[str],
    settings: Settings,
    quantifiers: list[str] | None,
    label_shares: list[float],
) -> Any:
    """Every quantifier on real communities of every dataset."""
    from xnq_dist.evaluation.communities import Plan, check_families, check_shares
    from xnq_dist.evaluation.keep import unpublish_communities

    began = time.perf_counter()
    out, settings = given(out=out, settings=settings)
    folder = Folder.of(out)
    done = []
    try:
        check_shares(label_shares)
        chosen = {}
        for source in sources:
            beside = Path(source.nodes).parent / "memberships.parquet"
            memberships = str(beside) if beside.exists() else None
            check_families(families, memberships, quantifiers)
            suited, _ = _with_features(source, settings)
            plan = Plan(
                tuple(families),
                tuple(label_shares),
                None if quantifiers is None else tuple(quantifiers),
                memberships,
            )
            chosen[source.name] = suited, plan
        folder.create()
        with (
            RunLock(folder),
            open_cluster(settings.cluster) as connection,
            connected(connection),
        ):
            unpublish_communities(folder)
            for source in sources:
                suited, plan = chosen[source.name]
                tables = Sources(source.nodes, source.edges)
                where = folder.child(source.name).location
                with line.open_run(where, tables) as run:
                    work = value_of(
                        prepare_task(
                            run.folder.location,
                            source,
                            suited,
                            None,
                            [1.0],
                            return_state=True,
                        )
                    )
                    state = evaluate_on_communities(work, plan, return_state=True)
                    done.append({"dataset": source.name, **value_of(state)})
            published = value_of(
                publish_communities_evaluation(folder.location, return_state=True)
            )
        return {
            "out": folder.uri,
            "results": f"{folder.uri}/community_results.parquet",
            "page": f"{folder.uri}/communities.html",
            **published,
            "done": done,
            "seconds": round(time.perf_counter() - began, 1),
        }
    except XnqError as error:
        return Failed(message=str(error), data=error)


def run_communities_evaluation(**arguments: Any) -> dict[str, Any]:
    """Run the flow here and now; raises what a stage raised."""
    return run_flow(communities_evaluation, **arguments)
