"""Evaluations on labelled graphs: methods by the paper's protocol, or communities.

There is one stage per dataset and method, or per dataset. What is in the output folder
is not computed again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
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
from xnq_dist.monitor.progress import in_view

if TYPE_CHECKING:
    import pyarrow as pa

    from xnq_dist.evaluation.rendered_table import RenderedTable
    from xnq_dist.evaluation.work import EvaluationWork

__all__ = ["DataSource", "find_data", "run_communities_evaluation", "run_evaluation"]

RESULTS = ("results", "estimates", "configurations")
COMMUNITY_RESULTS = ("community_results",)


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
    from xnq_dist.evaluation.datasets.known_graphs import TASKS, VARIABLE, download

    folder, root = Path(data).expanduser(), os.environ.get(VARIABLE)
    name, usual_splits = folder.absolute().name, "splits.parquet"
    if data in TASKS and not (folder / "nodes.parquet").exists():
        if not root:
            raise InputError(
                f"the graph {data!r} is not on this machine: set {VARIABLE} to the "
                "folder that contains it, or that it is to be downloaded to"
            )
        graph, usual_splits, usual_positive = TASKS[data]
        name, folder = data, download(graph, Path(root).expanduser())
        positive = positive or usual_positive
    elif root and not folder.exists():
        # A graph in the data folder that is not in the paper.
        folder = Path(root).expanduser() / data
    for table in ("nodes.parquet", "edges.parquet"):
        if not (folder / table).exists():
            raise InputError(
                f"--data {data}: {folder / table} does not exist: name a folder with "
                "nodes.parquet and edges.parquet, or one of "
                f"{', '.join(TASKS)}"
            )
    # Splits are a file in the folder, or a path.
    inside = folder / (splits or usual_splits)
    chosen = str(inside) if inside.exists() else splits
    tables = Sources(str(folder / "nodes.parquet"), str(folder / "edges.parquet"))
    task = TaskSource(name, chosen, positive)
    return DataSource(tables, task, family_of(name, folder))


def _with_features(source: DataSource, settings: Settings) -> tuple[Settings, bool]:
    """Settings with the features that ``auto`` chooses, and whether there are any."""
    nodes = open_table(source.tables.nodes, "node table", settings.input)
    columns = chosen_columns(nodes, settings)
    settings = settings.model_copy(update={"columns": columns})
    return settings, columns.features is not None


Job = Callable[..., dict[str, "pa.Table"]]
"""Evaluates one method, or communities, on one dataset; returns tables by name. Called
with a client, the work and ``progress``."""
Jobs = Mapping[str, Job]
"""By the name under which the tables are kept."""
Render = Callable[..., list["RenderedTable"]]
"""Makes tables in Markdown from the published ones."""


def _prepare(
    source: DataSource, settings: Settings, out: str, progress: Progress
) -> EvaluationWork:
    """Write graph and labels where the workers read them, and check the task."""
    from xnq_dist.evaluation.work import EvaluationWork

    pipeline.prepare(RunDirectory(out), source.tables, settings, progress)
    work = EvaluationWork(out, source.task, settings)
    work.task()
    return work


def _publish(
    out: Folder,
    names: Sequence[str],
    render: Render,
    progress: Progress,
) -> dict[str, Any]:
    """Write tables from all results kept in the folder."""
    from xnq_dist.evaluation.keep import publish
    from xnq_dist.evaluation.rendered_table import to_markdown

    tables, folder = publish(out, names), out.child("tables")
    made = {f"{one.name}.md": to_markdown(one) for one in render(*tables.values())}
    folder.create()
    for name in folder.names():
        if name.startswith("communities-") == (names == COMMUNITY_RESULTS):
            folder.delete(name)
    for name, text in made.items():
        folder.write_bytes(name, text.encode())
    rows = {name: table.num_rows for name, table in tables.items()}
    return {"rows": rows, "text": "\n".join(made.values())}


def _run(
    datasets: Sequence[tuple[DataSource, Settings, Jobs]],
    out: str,
    names: Sequence[str],
    render: Render,
) -> dict[str, Any]:
    """Run the jobs of every dataset, then write the tables of these names."""
    from xnq_dist.evaluation.keep import keep

    folder = Folder.of(out)
    folder.create()
    cluster = datasets[0][1].cluster

    def connected(
        job: Job, work: EvaluationWork, connection: Connection, progress: Progress
    ) -> dict[str, pa.Table]:
        with connect(connection, cluster.timeout) as client:
            return job(client, work, progress=progress)

    with run_lock(folder), open_cluster(cluster) as connection:
        for source, settings, jobs in datasets:
            dataset = source.task.dataset
            where = folder.child(dataset)
            with (
                pipeline.open_run(where.location, source.tables) as run,
                deleting_damage(run),
            ):
                work = in_view(
                    "graph", partial(_prepare, source, settings, run.location)
                )
                for name, job in jobs.items():
                    tables = in_view(dataset, partial(connected, job, work, connection))
                    keep(where, tables, name)
        published = in_view("publish", partial(_publish, folder, names, render))
    return {
        "out": folder.uri,
        "results": folder.uri_of(f"{names[0]}.parquet"),
        "tables": folder.uri_of("tables"),
        **published,
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
) -> dict[str, Any]:
    """Evaluate every method on every dataset and return a summary."""
    from xnq_dist.evaluation.methods.known_methods import choose_methods
    from xnq_dist.evaluation.on_workers import evaluate_method
    from xnq_dist.evaluation.paper import paper_tables

    datasets = []
    chosen, shares = None if folds is None else tuple(folds), tuple(label_shares)
    for one in sources:
        suited, has_features = _with_features(one, settings)
        evaluated = choose_methods(methods, has_features)
        rule: dict[str, Any] = {"draws": draws, "quantifiers": quantifiers}
        jobs = {m.name: partial(evaluate_method, method=m, **rule) for m in evaluated}
        task = replace(one.task, folds=chosen, label_shares=shares)
        datasets.append((replace(one, task=task), suited, jobs))

    # Configurations are kept, but no table shows them.
    return _run(datasets, out, RESULTS, lambda *tables: paper_tables(*tables[:2]))


def run_communities_evaluation(
    sources: list[DataSource],
    out: str,
    kinds: list[str],
    designs: list[str],
    settings: Settings,
    quantifiers: list[str] | None,
    label_shares: list[float],
    draws: int,
) -> dict[str, Any]:
    """Evaluate every quantifier on real communities of every dataset.

    Parameters
    ----------
    draws
        Number of random draws of the labelled nodes.

    Returns
    -------
    dict
        Summary: paths of the results, rows, text.
    """
    from xnq_dist.evaluation.community_cases import (
        CasePlan,
        check_plan,
        evaluate_communities,
    )
    from xnq_dist.evaluation.community_tables import community_tables

    paths = [Path(one.tables.nodes).parent / "memberships.parquet" for one in sources]
    memberships = [str(path) if path.exists() else None for path in paths]
    check_plan(kinds, designs, quantifiers, label_shares, memberships)

    datasets = []
    for one, members in zip(sources, memberships, strict=True):
        suited, _ = _with_features(one, settings)
        plan = CasePlan(
            kinds,
            label_shares,
            designs,
            quantifiers,
            members,
            one.family,
            draws,
        )
        datasets.append(
            (one, suited, {"communities": partial(evaluate_communities, plan=plan)})
        )
    return _run(datasets, out, COMMUNITY_RESULTS, community_tables)
