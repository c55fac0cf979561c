"""The report page: makes one self-contained HTML page from tables, without I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from xnq_dist.core.config import Settings
from xnq_dist.core.pictures import plain
from xnq_dist.core.store import SetAside
from xnq_dist.quantify.checks.anomalies import Anomalies
from xnq_dist.quantify.checks.quality import PUBLISHABLE
from xnq_dist.report import plots
from xnq_dist.report.changed import Changed
from xnq_dist.report.funnel import Funnel, funnel
from xnq_dist.report.page_facts import PageFacts, StageFacts, environment
from xnq_dist.report.sections import SECTIONS
from xnq_dist.report.view import QUALITIES, PrevalenceView
from xnq_dist.report.wording import count, difference, share, span
from xnq_dist.selection.words import sentences

__all__ = ["StageFacts", "page", "plot_files"]


def plot_files(
    view: PrevalenceView,
    stages: Mapping[str, StageFacts],
    partitions: pa.Table,
    settings: Settings | None = None,
    anomalies: Anomalies | None = None,
) -> dict[str, bytes]:
    """Draw the plots that the data allow; return SVG by name."""
    made: dict[str, bytes] = {}
    known = view.ranked
    if view.classes:
        known = known[~np.isnan(view.prevalence[known, -1])]
    if view.classes and len(known):
        top = known[: plots.DOTS]
        name = view.classes[-1]
        last = view.prevalence[:, -1]
        made["top"] = plots.top_communities(
            [view.name(k) for k in top],
            last[top],
            view.lower[top, -1],
            view.upper[top, -1],
            name,
        )
        made["histogram"] = plots.prevalence_histogram(view.prevalence, view.classes)
        made["size"] = funnel(Funnel.of(view, anomalies, settings or Settings()), name)
        readout = stages["readout"].facts if "readout" in stages else {}
        curve = readout.get("reliability") or {}
        if curve.get("count"):
            predicted, observed, count = (
                np.array([np.nan if v is None else v for v in curve[key]], np.float64)
                for key in ("predicted", "observed", "count")
            )
            made["reliability"] = plots.reliability_curve(
                predicted, observed, count, name
            )
    if partitions.num_rows > 1:
        made["partitions"] = plots.partition_sizes(
            partitions["owned"].to_numpy().astype(np.float64),
            partitions["halo"].to_numpy().astype(np.float64),
        )
    return made


def page(
    view: PrevalenceView,
    stages: Mapping[str, StageFacts],
    settings: Settings,
    figures: Mapping[str, bytes],
    anomalies: Anomalies | None = None,
    earlier: Changed | str | None = None,
    aside: Sequence[SetAside] = (),
    totals: pa.Table | None = None,
    title: str = "Prevalence of communities",
) -> str:
    """Render the complete report as HTML; every text from the data is escaped.

    Parameters
    ----------
    view, stages, settings, figures, anomalies, earlier
        As in `PageFacts`.
    aside
        Damaged files that were moved to quarantine since the last version.
    totals
        Estimates for all nodes together (schema ``totals``); None: not on the page.
    title
        Heading of the page.
    """
    from markupsafe import Markup

    # This package drew the SVG, and matplotlib escaped every text in it.
    drawn = {name: Markup(svg.decode()) for name, svg in figures.items()}  # noqa: S704
    facts = PageFacts(view, stages, settings, drawn, anomalies, earlier)
    bodies = [
        (record.name, record.title, SECTIONS.module_of(record.name).body(facts))
        for record in SECTIONS.records().values()
    ]
    template = environment().get_template("report.html.j2")
    return template.render(
        title=title,
        created=max((stage.created for stage in stages.values()), default=""),
        headline=_headline(facts, totals),
        labels=[plain(text, 1000) for text in _labels(facts)],
        warnings=[*_warnings(facts), *map(_set_aside, aside)],
        # A section's template has escaped every text.
        sections=[(*named, Markup(body)) for *named, body in bodies if body],  # noqa: S704
        anomalies=anomalies is not None,
        compared=isinstance(earlier, Changed),
    )


def _labels(facts: PageFacts) -> list[str]:
    """Sentences on how the labelled nodes were chosen and what follows from it."""
    verdict = facts.of("quantify").get("labels")
    if not verdict or facts.settings.quantifier != "auto":
        return []
    return sentences(verdict, facts.settings.intervals.level)


def _headline(facts: PageFacts, totals: pa.Table | None) -> list[tuple[str, str]]:
    """The page's first numbers: (what it is, number)."""
    view, settings = facts.view, facts.settings
    graph, quantify, labels = map(facts.of, ("graph", "quantify", "labels"))
    numbers = [
        ("nodes", count(graph.get("n_nodes"))),
        ("directed edges", count(graph.get("n_edges"))),
        ("labelled nodes", count(labels.get("n_labelled"))),
        ("communities", count(len(view.names))),
        ("memberships", count(quantify.get("n_memberships"))),
        ("classes", count(len(view.classes))),
        ("quantifier", settings.quantifier),
    ]
    counts = labels.get("class_counts")
    if isinstance(counts, Mapping):
        counts = list(counts.values())
    if counts and view.classes and sum(counts):
        labelled = share(counts[-1] / sum(counts))
        name = plain(view.classes[-1], 30)
        numbers.append((f"of the labelled nodes are class {name}", labelled))
    if view.classes and totals is not None:
        numbers.append(_total(totals, view.classes[-1], settings))
    skill = facts.of("readout").get("skill")
    if skill:
        ends = difference(skill["lower"], skill["upper"])
        what = (
            "reduction of the log-loss by the posteriors, compared with the class "
            f"shares alone ({ends} %)"
        )
        numbers.append((what, share(skill["value"])))
    held = quantify.get("own_coverage")
    if held:
        what = (
            f"coverage of the {100 * settings.intervals.level:g} % intervals in "
            f"{held['groups']:,} groups of this graph, each held out with all its "
            f"labels (mean error {100 * held['error']:.1f}, mean width "
            f"{100 * held['width']:.0f} points)"
        )
        numbers.append((what, share(held["covered"])))
    judged = view.quality[:, -1:][view.quality[:, -1:] > 0]
    if len(judged):
        good = np.count_nonzero(judged == QUALITIES.index(PUBLISHABLE))
        publishable = f"{good:,} of {len(judged):,}"
        numbers.append(("estimates are publishable (column quality)", publishable))
    return [(what, number) for what, number in numbers if number]


def _total(totals: pa.Table, name: str, settings: Settings) -> tuple[str, str]:
    """The estimate of a class for all nodes together, with its interval."""
    row = next(row for row in totals.to_pylist() if str(row["class"]) == name)
    nodes = "unlabelled nodes" if settings.labelled == "exclude" else "nodes"
    what = f"of all {nodes} are class {plain(name, 30)} (estimate"
    if row["lower"] is not None:
        level = f"{100 * settings.intervals.level:g} %"
        what += f"; {level} interval {span(row['lower'], row['upper'])}"
    if row["benchmarked"] is not None:
        what += f"; raked to the benchmarks {share(row['benchmarked'])}"
    number = "" if row["prevalence"] is None else share(row["prevalence"])
    return f"{what})", number


def _warnings(facts: PageFacts) -> list[str]:
    """Warnings that a reader must know before using a number; one sentence each."""
    view, warnings = facts.view, []
    counts = dict(facts.of("graph").get("counts") or {})
    quantify = facts.of("quantify")
    skill = facts.of("readout").get("skill")
    if skill and skill["lower"] <= 0:
        warnings.append(
            "The posteriors are not measurably better than the class shares of the "
            "labelled nodes, so every estimate is pulled towards these shares: label "
            "more nodes or add features."
        )
    stuck = int(np.count_nonzero(~view.converged))
    if stuck:
        warnings.append(
            f"{stuck:,} of {len(view.names):,} communities did not converge "
            "(column converged in prevalence.parquet): raise sld.max_iterations."
        )
    if view.classes:
        empty = int(np.count_nonzero(np.isnan(view.prevalence[:, -1])))
        if empty:
            warnings.append(
                f"{empty:,} communities have no prevalence, because they have no "
                "member to estimate from (column note in prevalence.parquet)."
            )
    flagged = int(np.count_nonzero(view.flagged))
    if flagged:
        warnings.append(
            f"{flagged:,} communities have a large expected error: see Fit check below."
        )
    for number, text in (
        (
            counts.get("unknown_dropped"),
            "edges were dropped because one of their nodes is not in the node table.",
        ),
        (counts.get("duplicates_dropped"), "duplicate edges were dropped."),
        (counts.get("self_loops_dropped"), "self-loops were dropped."),
        (
            quantify.get("unknown_dropped"),
            "memberships were dropped because the node is not in the node table.",
        ),
        (quantify.get("duplicates_dropped"), "duplicate memberships were dropped."),
    ):
        if number:
            warnings.append(f"{number:,} {text}")
    return warnings


def _set_aside(entry: SetAside) -> str:
    """A sentence on damaged files."""
    what = plain(f"{entry.name} was damaged ({entry.reason})", 400)
    return f"{what}: it was moved to quarantine/ and computed again ({entry.time})."
