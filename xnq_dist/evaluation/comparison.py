"""Evaluations on labelled graphs: methods by the paper's protocol, or communities.

There is one stage per dataset and method, or per dataset. What is in the output folder
is not computed again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xnq_dist import pipeline
from xnq_dist.core.cluster import connect, open_cluster
from xnq_dist.core.errors import InputError
from xnq_dist.core.lock import run_lock
from xnq_dist.core.progress import Progress
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Folder, deleting_damage
from xnq_dist.evaluation.task import TaskSource
from xnq_dist.graph.feature_types import chosen_columns
from xnq_dist.graph.sources import Sources
from xnq_dist.graph.tables import open_table
from xnq_dist.monitor.progress import in_view

if TYPE_CHECKING:
    import pyarrow as pa

    from xnq_dist.evaluation.community_cases import CasePlan
    from xnq_dist.evaluation.keep import RenderedTable

__all__ = ["Graph", "find_data", "run_communities_evaluation", "run_evaluation"]

RESULTS = ("results", "estimates")
COMMUNITY_RESULTS = ("community_results",)


Graph = tuple[Sources, TaskSource]
"""A labelled graph to evaluate on."""


def find_data(
    data: str, splits: str | None, positive: str | None, **options: Any
) -> Graph:
    """Find a graph by its folder or by its name in ``XNQ_DATA_DIR``.

    Raises
    ------
    InputError
        When there is no such graph.
    """
    from xnq_dist.evaluation.datasets import TABLES, TASKS, VARIABLE, download

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
    for table in TABLES:
        if not (folder / table).exists():
            raise InputError(
                f"--data {data}: {folder / table} does not exist: name a folder with "
                "nodes.parquet and edges.parquet, or one of "
                f"{', '.join(TASKS)}"
            )
    # Splits are a file in the folder, or a path.
    inside = folder / (splits or usual_splits)
    chosen = str(inside) if inside.exists() else splits
    given = folder / "memberships.parquet"
    task = TaskSource(
        name,
        chosen,
        positive,
        memberships=str(given) if given.exists() else None,
        **options,
    )
    return Sources(*(str(folder / table) for table in TABLES)), task


Evaluate = Callable[..., dict[str, "pa.Table"]]
"""Evaluates one method, or communities, on one dataset; returns tables by name. Called
with a client, the work, the arguments of a job and the progress."""
JobsOf = Callable[[bool], Mapping[str, tuple[Any, ...]]]
"""Whether a graph has features -> arguments of each job, by the name under which its
tables are kept."""
Render = Callable[..., list["RenderedTable"]]
"""Makes tables in Markdown from the published ones."""


def _publish(
    out: Folder,
    names: Sequence[str],
    render: Render,
    progress: Progress,
) -> dict[str, Any]:
    """Write tables from all results kept in the folder."""
    from xnq_dist.evaluation.keep import publish, to_markdown

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
    graphs: Sequence[Graph],
    out: str,
    settings: Settings,
    evaluate: Evaluate,
    jobs_of: JobsOf,
    names: Sequence[str],
    render: Render,
) -> dict[str, Any]:
    """Run the jobs of every dataset, then write the tables of these names."""
    from xnq_dist.evaluation.keep import keep
    from xnq_dist.evaluation.task import EvaluationWork

    datasets = []
    for tables, source in graphs:
        nodes = open_table(tables.nodes, "node table", settings.input)
        columns = chosen_columns(nodes, settings)
        suited = settings.model_copy(update={"columns": columns})
        jobs = jobs_of(columns.features is not None)
        datasets.append((tables, source, suited, jobs))
    folder = Folder.of(out)
    folder.create()
    with (
        run_lock(folder),
        open_cluster(settings.cluster) as connection,
        connect(connection, settings.cluster.timeout) as client,
    ):
        for tables, source, suited, jobs in datasets:
            where = folder.child(source.dataset)
            with (
                pipeline.open_run(where.location, tables) as run,
                deleting_damage(run),
            ):
                in_view("graph", partial(pipeline.prepare, run, tables, suited))
                work = EvaluationWork(run.location, source, suited)
                # Folds that cannot be used are refused before a job begins.
                work.task()
                for name, arguments in jobs.items():
                    task = partial(evaluate, client, work, *arguments)
                    keep(where, in_view(source.dataset, task), name)
        published = in_view("publish", partial(_publish, folder, names, render))
    return {
        "out": folder.uri,
        "results": folder.uri_of(f"{names[0]}.parquet"),
        "tables": folder.uri_of("tables"),
        **published,
    }


def run_evaluation(
    graphs: Sequence[Graph],
    out: str,
    settings: Settings,
    methods: Sequence[str],
    draws: int,
    quantifiers: Sequence[str] | None,
) -> dict[str, Any]:
    """Evaluate every method on every dataset and return a summary."""
    from xnq_dist.evaluation.methods.known_methods import choose_methods
    from xnq_dist.evaluation.on_workers import evaluate_method
    from xnq_dist.evaluation.paper import paper_tables
    from xnq_dist.evaluation.scoring import check_of_samples

    check_of_samples(quantifiers or ())

    def jobs_of(has_features: bool) -> Mapping[str, tuple[Any, ...]]:
        chosen = choose_methods(methods, has_features)
        return {method.name: (method, draws, quantifiers) for method in chosen}

    return _run(graphs, out, settings, evaluate_method, jobs_of, RESULTS, paper_tables)


def run_communities_evaluation(
    graphs: Sequence[Graph], out: str, settings: Settings, plan: CasePlan
) -> dict[str, Any]:
    """Evaluate every quantifier on real communities of every dataset.

    Returns
    -------
    dict
        Summary: paths of the results, rows, text.
    """
    from xnq_dist.evaluation.community_cases import check_plan, evaluate_communities
    from xnq_dist.evaluation.community_tables import community_tables

    check_plan(plan, [source.memberships for _, source in graphs])

    return _run(
        graphs,
        out,
        settings,
        evaluate_communities,
        lambda _: {"communities": (plan,)},
        COMMUNITY_RESULTS,
        community_tables,
    )
