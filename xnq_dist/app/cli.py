"""The command line ``xnq-dist``. Slow imports are inside the commands that use them."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from xnq_dist._version import __version__
from xnq_dist.app.doctor import doctor, status
from xnq_dist.app.ending import end_process, named_ending, open_streams
from xnq_dist.app.environment import prepare_environment
from xnq_dist.app.evaluate_command import evaluate
from xnq_dist.app.output import (
    Config,
    Json,
    Set,
    begin,
    json_alone,
    print_json,
    print_summary,
)
from xnq_dist.app.result_commands import history, label_plan
from xnq_dist.app.settings_command import WithSettings, settings_command
from xnq_dist.core.errors import SettingsError
from xnq_dist.core.failures import stage_errors
from xnq_dist.core.limits import keep_free_memory
from xnq_dist.core.redaction import redacted
from xnq_dist.monitor.progress import CONSOLE

__all__ = ["app", "main"]

log = logging.getLogger("xnq_dist")


app = typer.Typer(
    name="xnq-dist",
    help="Class prevalence of every community of a very large graph.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

TABLES = "Tables"
"""Group of options in the help."""

Nodes = Annotated[
    str,
    typer.Option(
        help="Node table: file, folder, glob or URI; Parquet or CSV.",
        rich_help_panel=TABLES,
    ),
]
Edges = Annotated[
    str, typer.Option(help="Edge table, in the same forms.", rich_help_panel=TABLES)
]
Memberships = Annotated[
    str | None,
    typer.Option(
        help="Community memberships; if left out, Leiden detects communities.",
        rich_help_panel=TABLES,
    ),
]


def _version(show: bool) -> None:
    if show:
        typer.echo(f"xnq-dist {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True)
    ] = False,
) -> None:
    prepare_environment()  # before the commands import Dask, NumPy and Numba


@app.command(cls=WithSettings)
def run(
    nodes: Nodes,
    edges: Edges,
    out: Annotated[
        str,
        typer.Option(
            help="Run directory; resumed if it exists.", rich_help_panel="Result"
        ),
    ],
    memberships: Memberships = None,
    config: Config = None,
    settings: Set = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", help="Compute every stage again.", rich_help_panel="Result"
        ),
    ] = False,
    prefect: Annotated[
        bool,
        typer.Option(
            "--prefect",
            help="Run as the flow xnq-nightly, which Prefect's API shows.",
            rich_help_panel="Result",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Estimate the prevalence of every class in every community."""
    tables = (str(redacted(path)) for path in (nodes, edges, memberships) if path)
    begin(f"reading {', '.join(tables)}")
    from xnq_dist.core.config import load_settings
    from xnq_dist.core.store import RunDirectory
    from xnq_dist.due import nothing_changed, scratch_of
    from xnq_dist.graph.sources import Sources
    from xnq_dist.monitor.status import recorded

    chosen = load_settings(config or (), settings or ())
    sources = Sources(nodes, edges, memberships)
    if prefect:
        from xnq_dist.app.running import run_as_flow

        print_summary(run_as_flow(sources, out, chosen, overwrite))
        return
    with (
        recorded(out),
        sources.copied(scratch_of(RunDirectory(out), chosen)) as sources,
    ):
        summary = None if overwrite else nothing_changed(out, sources, chosen)
        if summary:
            typer.echo(f"nothing changed since {summary['since']}: nothing to do")
        else:
            from xnq_dist.app.running import console_progress
            from xnq_dist.jobs import run_all

            with console_progress():
                summary = run_all(sources, out, chosen, overwrite)
    print_summary(summary)


@app.command()
def profile(
    nodes: Nodes,
    edges: Edges,
    memberships: Memberships = None,
    config: Config = None,
    settings: Set = None,
    as_json: Json = False,
) -> None:
    """Show what the tables hold, and what looks wrong in them; nothing is computed.

    Some 10 million rows take 10 seconds. The exit status is 2 if a run would be
    refused for a finding.
    """
    from xnq_dist.core.config import load_settings
    from xnq_dist.graph.profile.headers import check_headers
    from xnq_dist.graph.profile.inputs import lines, profile_inputs
    from xnq_dist.graph.sources import Sources

    chosen = load_settings(config or (), settings or ())
    sources = Sources(nodes, edges, memberships)
    check_headers(sources, chosen)
    found = profile_inputs(sources, chosen)
    for line in lines(found, chosen.disclosure.min_size):
        typer.echo(line)
    print_json(asdict(found))
    if any(each.level == "refusal" for each in found.findings):
        raise typer.Exit(2)


@app.command(cls=WithSettings)
def requantify(
    run: Annotated[str, typer.Option(help="Run directory with embeddings.")],
    memberships: Annotated[
        str | None, typer.Option(help="New memberships; default: those of the run.")
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help="Table with new labels: node id, label and optionally role; nodes "
            "not in the table are unlabelled. Default: the labels of the run."
        ),
    ] = None,
    out: Annotated[
        str | None, typer.Option(help="Run directory for the results; default: --run.")
    ] = None,
    settings: Set = None,
    as_json: Json = False,
) -> None:
    """Estimate again with new labels or memberships; the embeddings are reused."""
    begin(f"estimating again from {redacted(run)}")
    from xnq_dist.reuse import Request

    request = Request.of(run, out, memberships, labels, settings or [])
    from xnq_dist import jobs
    from xnq_dist.app.running import console_progress
    from xnq_dist.monitor.status import recorded

    with console_progress(), recorded(out or run, "requantify"):
        summary = jobs.requantify(request)
    print_summary(summary)


@app.command()
def demo(
    out: Annotated[str, typer.Option(help="Folder.")] = "xnq-demo",
    seed: Annotated[int, typer.Option(help="Seed of the network and the run.")] = 0,
    as_json: Json = False,
) -> None:
    """Run the complete pipeline on a small generated data set with known truth."""
    begin(f"generating a small data set in {out}")
    from xnq_dist.app.demo import run_demo
    from xnq_dist.app.running import console_progress

    with console_progress():
        text, summary = run_demo(out, seed)
    typer.echo(text)
    print_json(summary)


@app.command()
def generate(
    out: Annotated[str, typer.Option(help="Folder for the tables.")],
    nodes: Annotated[int, typer.Option(help="Number of nodes.")] = 10_000,
    degree: Annotated[float, typer.Option(help="Mean degree.")] = 10.0,
    features: Annotated[int, typer.Option(help="Input features per node.")] = 16,
    classes: Annotated[int, typer.Option(help="Number of classes.")] = 2,
    homophily: Annotated[
        float, typer.Option(help="Share of edges that join nodes of the same class.")
    ] = 0.3,
    communities: Annotated[int, typer.Option(help="Number of communities.")] = 50,
    labelled: Annotated[float, typer.Option(help="Share of labelled nodes.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of the network.")] = 0,
    as_json: Json = False,
) -> None:
    """Generate a network whose true classes are known, as four Parquet tables."""
    from xnq_dist.graph import generate as generator

    arguments = generator.Arguments(
        nodes, degree, features, classes, homophily, communities, seed, labelled
    )
    with stage_errors(out, "generate"):
        paths = generator.generate(out, arguments)
    for name, path in paths.items():
        typer.echo(f"  {name:<12}{path}")
    print_json({"paths": paths})


@app.command(cls=WithSettings)
def estimate(
    nodes: Annotated[
        str, typer.Option(help="Node table as for run, or the number of nodes (111e6).")
    ],
    edges: Annotated[
        str, typer.Option(help="Edge table, or the number of directed edges (1.6e9).")
    ],
    memberships: Memberships = None,
    config: Config = None,
    settings: Set = None,
    features: Annotated[
        int, typer.Option(min=1, help="With numbers: features per node.")
    ] = 128,
    classes: Annotated[
        int, typer.Option(min=2, help="With numbers: number of classes.")
    ] = 2,
    labelled: Annotated[
        float, typer.Option(min=0, max=1, help="With numbers: share of labelled nodes.")
    ] = 0.01,
    as_json: Json = False,
) -> None:
    """Print the plan of a run, without running it: partitions, memory, disk, time.

    With numbers instead of tables, plan for a graph of that size. The workers need not
    exist: set cluster.workers, cluster.threads and cluster.memory_limit, and
    backend=gpu for workers with a GPU each.
    """
    begin("planning")
    from xnq_dist import pipeline
    from xnq_dist.core.config import load_settings
    from xnq_dist.graph.sources import Sources
    from xnq_dist.plan import GraphSize, check_client_fits, check_fits

    chosen = load_settings(config or (), settings or ())
    n_nodes, n_edges = _count(nodes), _count(edges)
    if n_nodes is None or n_edges is None:
        plan = pipeline.estimate(Sources(nodes, edges, memberships), chosen)
    else:
        size = GraphSize(n_nodes, n_edges, features, classes, int(labelled * n_nodes))
        plan = pipeline.estimate_counts(size, chosen)
    for name, value in plan.lines():
        typer.echo(f"  {name:<32}{value}")
    print_json(asdict(plan))
    check_client_fits(plan)
    check_fits(plan)


def _count(text: str) -> int | None:
    """A number of nodes or edges; None when the text is not a number (a table)."""
    try:
        number = float(text)
    except ValueError:
        return None
    if not 1 <= number < 2**62:
        raise SettingsError(
            f"--nodes or --edges {text} is out of range: give a number from 1 to 2^62"
        )
    return int(number)


# After those above, which a newcomer needs first.
app.command("label-plan")(label_plan)
app.command()(history)
app.command()(status)
app.command()(doctor)
app.command("settings")(settings_command)
app.command(cls=WithSettings)(evaluate)


def _without_traceback(record: logging.LogRecord) -> bool:
    # Dask logs a lost connection with its traceback; the command's one-sentence error
    # message is enough.
    record.exc_info = record.exc_text = None
    return True


def _set_up_logging() -> None:
    if CONSOLE in log.handlers:
        return
    log.addHandler(CONSOLE)
    log.setLevel(logging.INFO)
    log.propagate = False
    if not os.environ.get("XNQ_DEBUG"):
        for name in ("distributed.client", "distributed.scheduler"):
            logging.getLogger(name).addFilter(_without_traceback)


def main(arguments: list[str] | None = None) -> None:
    """Run a command.

    Exit status: 0 done, 1 internal error, 2 bad input or settings, 3 not enough memory
    or disk, 4 interrupted or infrastructure lost (run it again).
    """
    open_streams()
    _set_up_logging()
    words = sys.argv[1:] if arguments is None else arguments
    as_json = "--json" in words
    status = {"code": 1}
    if arguments is None:
        keep_free_memory()
        atexit.register(end_process, status)  # runs after those registered later
    try:
        with json_alone(as_json), named_ending(words):
            # Returns the status of `typer.Exit`; usage errors end in `named_ending`.
            sys.exit(app(arguments, "xnq-dist", standalone_mode=not as_json) or 0)
    except SystemExit as ended:
        status["code"] = int(ended.code or 0)
        raise


if __name__ == "__main__":
    main()
