"""Evaluations on labelled graphs: methods by the paper's protocol, or communities.

There is one stage per dataset and method, or per dataset. What is in the output folder
is not computed again.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xnq_dist import pipeline
from xnq_dist.core.cluster import Connection, connect, open_cluster
from xnq_dist.core.errors import InputError
from xnq_dist.core.lock import run_lock
from xnq_dist.core.progress import Progress
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Folder, RunDirectory, deleting_damage
from xnq_dist.evaluation.task import TaskSource
from xnq_dist.graph.feature_types import chosen_columns
from xnq_dist.graph.tables import Sources, open_table
from xnq_dist.jobs import Do

if TYPE_CHECKING:
    from distributed import Client

    from xnq_dist.evaluation.community_cases import CasePlan
    from xnq_dist.evaluation.keep import Published
    from xnq_dist.evaluation.work import EvaluationWork

__all__ = ["DataSource", "find_data", "run_communities_evaluation", "run_evaluation"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DataSource:
    """A labelled graph to evaluate on."""

    tables: Sources
    task: TaskSource
    family: str
    """Group of similar graphs, which are left out together."""


def find_data(data: str, splits: str | None, positive: str | None) -> DataSource:
    """Find a graph by its folder or by its name in ``XNQ_DATA_DIR``.

    Raises
    ------
    InputError
        When there is no such graph.
    """
    from xnq_dist.evaluation.datasets.families import family_of
    from xnq_dist.evaluation.datasets.known_graphs import TASKS, VARIABLE, find

    folder = Path(data).expanduser()
    name = folder.absolute().name
    if data in TASKS and not (folder / "nodes.parquet").exists():
        known = TASKS[data]
        name = data
        folder = find(known.folder) or _downloaded(known.folder)
        splits = splits or known.splits
        positive = positive or known.positive
    elif not folder.exists() and (root := os.environ.get(VARIABLE)):
        # A graph in the data folder that is not in the paper.
        folder = next((f for f in [Path(root) / data] if f.is_dir()), folder)
    for table in ("nodes.parquet", "edges.parquet"):
        if not (folder / table).exists():
            raise InputError(
                f"--data {data}: {folder / table} does not exist: name a folder with "
                "nodes.parquet and edges.parquet, or one of "
                f"{', '.join(TASKS)}"
            )
    if splits is None:
        default = folder / "splits.parquet"
        chosen = str(default) if default.exists() else None
    else:
        # A name inside the folder, or a path.
        inside = folder / splits
        chosen = str(inside if inside.exists() else Path(splits))
    tables = Sources(str(folder / "nodes.parquet"), str(folder / "edges.parquet"))
    task = TaskSource(name, chosen, positive)
    return DataSource(tables, task, family_of(name, folder))


def _downloaded(name: str) -> Path:
    """Download a graph of the paper to ``XNQ_DATA_DIR``; return its folder."""
    from xnq_dist.evaluation.datasets.known_graphs import VARIABLE, download

    root = os.environ.get(VARIABLE)
    if not root:
        raise InputError(
            f"the graph {name!r} is not on this machine: set {VARIABLE} to the folder "
            f"that contains {name}/, or that it is to be downloaded to"
        )
    return download(name, Path(root).expanduser())


def _with_features(source: DataSource, settings: Settings) -> tuple[Settings, bool]:
    """Settings with the features that ``auto`` chooses, and whether there are any."""
    nodes = open_table(source.tables.nodes, "node table", settings.input)
    columns = chosen_columns(nodes, settings)
    if settings.columns.features is not None and columns.features is None:
        name = source.task.dataset
        log.info("%s: the node table has no features; only edges are used", name)
    settings = settings.model_copy(update={"columns": columns})
    return settings, columns.features is not None


Job = Callable[["Client", "EvaluationWork", Progress], dict[str, Any]]
"""Evaluates one method, or communities, on one dataset and keeps the tables."""


@dataclass(frozen=True)
class _Jobs:
    """What is done with one dataset."""

    tables: Sources
    settings: Settings
    task: TaskSource
    jobs: list[Job]

    def prepare(self, out: str, progress: Progress) -> EvaluationWork:
        """Write graph and labels where the workers read them, and check the task."""
        from xnq_dist.evaluation.work import EvaluationWork

        pipeline.prepare(RunDirectory(out), self.tables, self.settings, progress)
        work = EvaluationWork(out, self.task, self.settings)
        work.task()
        return work


def _evaluate_method(
    name: str,
    draws: int,
    quantifiers: Sequence[str] | None,
    client: Client,
    work: EvaluationWork,
    progress: Progress,
) -> dict[str, Any]:
    """Evaluate one method on one dataset: search, model selection, test."""
    from xnq_dist.evaluation.keep import PAPER, keep
    from xnq_dist.evaluation.methods.known_methods import known_methods
    from xnq_dist.evaluation.on_workers import evaluate_method
    from xnq_dist.evaluation.results import tidy_tables

    method = known_methods()[name]
    result = evaluate_method(client, work, method, draws, quantifiers, progress)
    keep(Folder.of(work.run), PAPER, tidy_tables(work.task(), result), name)
    return {"method": name}


def _evaluate_on_communities(
    plan: CasePlan, client: Client, work: EvaluationWork, progress: Progress
) -> dict[str, Any]:
    """Evaluate every quantifier on every kind of communities of one dataset."""
    from xnq_dist.evaluation.community_cases import evaluate_communities
    from xnq_dist.evaluation.keep import COMMUNITIES, keep

    table = evaluate_communities(client, work, plan, progress)
    keep(Folder.of(work.run), COMMUNITIES, {"community_results": table})
    return {"rows": table.num_rows}


def _publish(out: str, of: Published, _progress: Progress) -> dict[str, Any]:
    """Write tables and plots from all results kept in the folder."""
    from xnq_dist.evaluation.community_tables import community_outputs
    from xnq_dist.evaluation.keep import COMMUNITIES, publish
    from xnq_dist.evaluation.paper import paper_outputs

    folder = Folder.of(out)
    tables = publish(folder, of)
    outputs = community_outputs if of is COMMUNITIES else paper_outputs
    files, text = outputs(
        *(tables[name] for name in of.tables if name != "configurations")
    )
    for name, data in files.items():
        parent, _, file = name.rpartition("/")
        target = folder.child(parent) if parent else folder
        target.create()
        target.write_bytes(file, data)
    rows = {name: table.num_rows for name, table in tables.items()}
    return {"rows": rows, "text": text}


def _run(datasets: dict[str, _Jobs], out: str, of: Published, do: Do) -> dict[str, Any]:
    """Run the jobs of every dataset, by its name, then write tables."""
    from xnq_dist.evaluation.keep import unpublish

    began = time.perf_counter()
    folder = Folder.of(out)
    folder.create()
    done = []
    cluster = next(iter(datasets.values())).settings.cluster

    def connected(
        job: Job, work: EvaluationWork, connection: Connection, progress: Progress
    ) -> dict[str, Any]:
        with connect(connection, cluster.timeout) as client:
            return job(client, work, progress)

    with run_lock(folder), open_cluster(cluster) as connection:
        unpublish(folder, of)
        for name, one in datasets.items():
            where = folder.child(name).location
            with pipeline.open_run(where, one.tables) as run, deleting_damage(run):
                work = do("graph", partial(one.prepare, run.location))
                for job in one.jobs:
                    started = time.perf_counter()
                    result = do(name, partial(connected, job, work, connection))
                    seconds = round(time.perf_counter() - started, 1)
                    done.append({"dataset": name, **result, "seconds": seconds})
        published = do("publish", partial(_publish, folder.location, of))
    return {
        "out": folder.uri,
        "results": folder.uri_of(f"{of.tables[0]}.parquet"),
        "tables": folder.uri_of("tables"),
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
    """Evaluate every method on every dataset and return a summary.

    `do` runs each stage.
    """
    from xnq_dist.evaluation.keep import PAPER
    from xnq_dist.evaluation.methods.known_methods import choose_methods

    datasets: dict[str, _Jobs] = {}
    chosen, shares = None if folds is None else tuple(folds), tuple(label_shares)
    for one in sources:
        suited, has_features = _with_features(one, settings)
        choose_methods(methods, has_features)
        jobs: list[Job] = [
            partial(_evaluate_method, name, draws, quantifiers) for name in methods
        ]
        task = replace(one.task, folds=chosen, label_shares=shares)
        datasets[task.dataset] = _Jobs(one.tables, suited, task, jobs)
    return _run(datasets, out, PAPER, do)


def run_communities_evaluation(
    sources: list[DataSource],
    out: str,
    kinds: list[str],
    designs: list[str],
    settings: Settings,
    quantifiers: list[str] | None,
    label_shares: list[float],
    draws: int,
    do: Do,
) -> dict[str, Any]:
    """Evaluate every quantifier on real communities of every dataset.

    Parameters
    ----------
    draws
        Number of random draws of the labelled nodes.
    do
        Runs each stage.

    Returns
    -------
    dict
        Summary: paths of the results, text, seconds.
    """
    from xnq_dist.evaluation.community_cases import CasePlan, check_plan
    from xnq_dist.evaluation.keep import COMMUNITIES

    paths = [Path(one.tables.nodes).parent / "memberships.parquet" for one in sources]
    memberships = [str(path) if path.exists() else None for path in paths]
    check_plan(kinds, designs, quantifiers, label_shares, memberships)
    datasets: dict[str, _Jobs] = {}
    for one, members in zip(sources, memberships, strict=True):
        suited, _ = _with_features(one, settings)
        plan = CasePlan(
            tuple(kinds),
            tuple(label_shares),
            tuple(designs),
            None if quantifiers is None else tuple(quantifiers),
            members,
            one.family,
            draws,
        )
        jobs: list[Job] = [partial(_evaluate_on_communities, plan)]
        datasets[one.task.dataset] = _Jobs(one.tables, suited, one.task, jobs)
    return _run(datasets, out, COMMUNITIES, do)
