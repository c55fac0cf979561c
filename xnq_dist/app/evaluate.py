"""Methods side by side on labelled graphs: search, selection, test, tables.

One stage a dataset and method. What is scored already is not scored again: the
units in the output folder decide that.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xnq_dist import pipeline as line
from xnq_dist.core.cluster import Connection, connect, open_cluster
from xnq_dist.core.config import Settings
from xnq_dist.core.errors import InputError
from xnq_dist.core.lock import RunLock
from xnq_dist.core.progress import Progress
from xnq_dist.core.store import Folder, RunDirectory, setting_aside
from xnq_dist.graph.tables import Sources, open_table
from xnq_dist.jobs import Do

if TYPE_CHECKING:
    from xnq_dist.evaluation.community_cases import CasePlan
    from xnq_dist.evaluation.keep import Published
    from xnq_dist.evaluation.work import EvaluationWork

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


def _prepare_task(
    out: str,
    source: DataSource,
    settings: Settings,
    folds: Sequence[int] | None,
    label_shares: Sequence[float],
    progress: Progress,
) -> EvaluationWork:
    """Graph, labels and folds of one dataset, where workers find them."""
    from xnq_dist.evaluation.task import TaskSource, load_task
    from xnq_dist.evaluation.work import EvaluationWork

    run = RunDirectory(out)
    line.prepare(run, Sources(source.nodes, source.edges), settings, progress)
    wanted = TaskSource(
        source.name,
        source.splits,
        source.positive,
        None if folds is None else tuple(folds),
        tuple(label_shares),
    )
    task = load_task(run, wanted, settings.seed)
    return EvaluationWork.begin(run, task, settings)


def _evaluate_method(
    name: str,
    draws: int,
    quantifiers: Sequence[str] | None,
    work: EvaluationWork,
    connection: Connection,
    progress: Progress,
) -> dict[str, Any]:
    """One method on one dataset: search, selection, test."""
    from xnq_dist.evaluation import on_workers as stage
    from xnq_dist.evaluation.keep import PAPER, keep
    from xnq_dist.evaluation.methods.known_methods import known_methods
    from xnq_dist.evaluation.results import tidy_tables

    with connect(connection, work.settings.cluster.timeout) as client:
        result = stage.evaluate_method(
            client, work, known_methods()[name], draws, quantifiers, progress
        )
    tables = tidy_tables(work.task(), result)
    keep(Folder.of(work.run), PAPER, tables, name)
    return {"method": name}


def _evaluate_on_communities(
    plan: CasePlan, work: EvaluationWork, connection: Connection, progress: Progress
) -> dict[str, Any]:
    """Every estimator on every kind of communities of one dataset."""
    from xnq_dist.evaluation.community_cases import evaluate_communities
    from xnq_dist.evaluation.keep import COMMUNITIES, keep

    with connect(connection, work.settings.cluster.timeout) as client:
        table = evaluate_communities(client, work, plan, progress)
    keep(Folder.of(work.run), COMMUNITIES, {"community_results": table})
    return {"rows": table.num_rows}


def _publish(out: str, of: Published, _progress: Progress) -> dict[str, Any]:
    """Tables, plots and page of everything kept in the folder."""
    from xnq_dist.evaluation import community_tables, render, summary
    from xnq_dist.evaluation.keep import COMMUNITIES, publish

    folder = Folder.of(out)
    tables = publish(folder, of)
    first = tables[of.tables[0]]
    if of is COMMUNITIES:
        files = community_tables.community_outputs(first)
        text = community_tables.community_text(first)
    else:
        files = render.outputs(first, tables["estimates"])
        text = summary.text(first)
    for name, data in files.items():
        inside, _, last = name.rpartition("/")
        place = folder.child(inside) if inside else folder
        place.create()
        place.write_bytes(last, data)
    rows = {name: table.num_rows for name, table in tables.items()}
    return {"rows": rows, "text": text}


Job = Callable[["EvaluationWork", Connection, Progress], dict[str, Any]]


def _run(
    sources: list[DataSource],
    out: str,
    of: Published,
    jobs: Mapping[str, tuple[Settings, list[Job]]],
    folds: list[int] | None,
    label_shares: list[float],
    do: Do,
) -> dict[str, Any]:
    """The jobs of every dataset (by name, with its settings), then all tables."""
    from xnq_dist.evaluation.keep import unpublish

    began = time.perf_counter()
    folder = Folder.of(out)
    folder.create()
    done = []
    cluster = jobs[sources[0].name][0].cluster
    with RunLock(folder), open_cluster(cluster) as connection:
        unpublish(folder, of)
        for source in sources:
            settings, own = jobs[source.name]
            where = folder.child(source.name).location
            tables = Sources(source.nodes, source.edges)
            with line.open_run(where, tables) as run, setting_aside(run):
                wanted = source, settings, folds, label_shares
                work = do("graph", partial(_prepare_task, run.location, *wanted))
                for job in own:
                    started = time.perf_counter()
                    found = do(source.name, partial(job, work, connection))
                    seconds = round(time.perf_counter() - started, 1)
                    done.append({"dataset": source.name, **found, "seconds": seconds})
        published = do("publish", partial(_publish, folder.location, of))
    return {
        "out": folder.uri,
        "results": folder.uri_of(f"{of.tables[0]}.parquet"),
        "page": folder.uri_of(of.page),
        **published,
        "done": done,
        "seconds": round(time.perf_counter() - began, 1),
    }


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
    """Every method on every dataset, in this process; `do` does each stage."""
    from xnq_dist.evaluation.keep import PAPER
    from xnq_dist.evaluation.methods.known_methods import choose_methods

    jobs: dict[str, tuple[Settings, list[Job]]] = {}
    for source in sources:
        suited, has_features = _with_features(source, settings)
        choose_methods(methods, has_features)
        jobs[source.name] = (
            suited,
            [partial(_evaluate_method, name, draws, quantifiers) for name in methods],
        )
    return _run(sources, out, PAPER, jobs, folds, label_shares, do)


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
    undeclared
        Whether `labels.drawn` is unknown for every design.
    do
        Does each stage.
    """
    from xnq_dist.evaluation.community_cases import CasePlan, check_plan, check_shares
    from xnq_dist.evaluation.keep import COMMUNITIES

    check_shares(label_shares)
    given = [Path(source.nodes).parent / "memberships.parquet" for source in sources]
    memberships = [str(path) if path.exists() else None for path in given]
    check_plan(kinds, designs, quantifiers, memberships)
    jobs: dict[str, tuple[Settings, list[Job]]] = {}
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
        jobs[source.name] = suited, [partial(_evaluate_on_communities, plan)]
    return _run(sources, out, COMMUNITIES, jobs, None, [1.0], do)
