"""The report page: plain tables in, one self-contained HTML file out; no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xnq_dist.config import Settings
from xnq_dist.drawing import plain
from xnq_dist.quantify.anomalies import Anomalies
from xnq_dist.report import plots
from xnq_dist.report.view import PrevalenceView

__all__ = ["StageFacts", "page", "plot_files"]

TOP, BOTTOM = 100, 20
"""Communities that the table shows when there are more than both together."""
CLASSES_SHOWN = 8
ANOMALIES_SHOWN = 15
DOTS = 30
"""Communities in the plot of the highest prevalences."""

QUANTIFIER_TEXT = {
    "auto": "A community with hardly an edge inside is taken for a sample drawn by "
    "class, and SLD answers. In any other the posteriors may be off as a "
    "whole: several ways in which they may be (unmoved, sharper, moved by "
    "what SLD finds or by half of it, each with an intercept of the "
    "community's own) are weighed by the labelled nodes of all communities; "
    "the answer is the median of what they say together, with the "
    "community's own labels taken in. Intervals hold what the labels leave "
    "open: the intercept, the calibration, and which of the unlabelled "
    "nodes are of the class.",
    "sld": "Expectation maximisation after Saerens, Latinne and Decaestecker (SLD): "
    "starting from the class proportions of the labelled nodes, posteriors are "
    "re-weighted and averaged in turns until the proportions no longer move.",
    "sld_bcts": "SLD after bias-corrected temperature scaling: posteriors are "
    "calibrated anew on the labelled nodes before expectation maximisation.",
    "sld_exact": "The class proportions that make the members' posteriors most likely: "
    "where SLD's expectation maximisation would end after endless steps.",
    "cc": "Classify and count: the share of nodes whose most probable class it is.",
    "pcc": "Mean posterior (probabilistic classify and count).",
    "acc": "Adjusted count: votes corrected by the readout's own error rates.",
    "pacc": "Adjusted mean posterior: mean posteriors corrected by the readout's own "
    "mean posteriors within each class.",
    "nacc": "Neighbourhood-aware adjusted count (NACC): votes of a node and of most of "
    "its neighbours, taken together, corrected by how often each pair was seen at the "
    "labelled nodes of each class.",
    "npacc": "Neighbourhood-aware adjusted mean posterior: products of a node's "
    "posterior and its neighbours' mean posterior, corrected by what they were at the "
    "labelled nodes of each class.",
    "hdy": "Histograms of the posterior: the mixture of the two classes' histograms "
    "that is nearest to the community's (Hellinger distance), and the median over 10, "
    "20, ..., 110 bins.",
    "dys": "Histograms of the posterior: the mixture of the two classes' histograms "
    "that is nearest to the community's (Topsoe distance).",
    "dmy": "Histograms of every class's posterior: the mixture of the classes' "
    "histograms that is nearest to the community's (mean Topsoe distance).",
    "kdey_ml": "Kernel densities of the posteriors of each class's labelled nodes: the "
    "mixture of them that makes the community's posteriors most likely.",
}


@dataclass(frozen=True)
class StageFacts:
    """What the page says of one stage."""

    name: str
    seconds: float
    facts: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    created: str = ""


def plot_files(
    view: PrevalenceView, stages: Mapping[str, StageFacts], partitions: pa.Table
) -> dict[str, bytes]:
    """The plots that the data allow, by name, as SVG."""
    made: dict[str, bytes] = {}
    known = view.ranked
    if view.classes:
        known = known[~np.isnan(view.prevalence[known, -1])]
    if view.classes and len(known):
        top = known[:DOTS]
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
        made["size"] = plots.prevalence_against_size(
            view.n_nodes.astype(np.float64), last, name
        )
        curve = _facts(stages, "readout").get("reliability") or {}
        if curve.get("count"):
            predicted, observed, count = (
                np.array([np.nan if v is None else v for v in curve[key]], np.float64)
                for key in ("predicted", "observed", "count")
            )
            made["reliability"] = plots.reliability_curve(
                predicted, observed, count, name
            )
    if partitions.num_rows > 1:
        made["partitions"] = plots.partition_cut(
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
    title: str = "Prevalence of communities",
) -> str:
    """The whole report as HTML; every text from the data is escaped.

    Parameters
    ----------
    view
        The prevalence table, arranged.
    stages
        Stages of the run by name, in the order they ran.
    settings
        Settings of the run.
    figures
        SVG by the names that `plot_files` gives.
    anomalies
        Of the communities in the order of `view`; None: nothing is said of them.
    title
        Heading of the page.
    """
    import jinja2
    import markupsafe

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("xnq_dist.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["count"] = _count
    environment.filters["share"] = _share
    environment.filters["figure"] = _figure
    quantify = _facts(stages, "quantify")
    total = len(view.names)
    cut = total > TOP + BOTTOM
    columns = (
        plots.shown_classes(view.prevalence, CLASSES_SHOWN) if view.classes else []
    )
    rows = _rows(view, view.ranked[:TOP] if cut else view.ranked, columns, 1)
    tail = _rows(view, view.ranked[-BOTTOM:], columns, total - BOTTOM + 1)
    return environment.get_template("report.html.j2").render(
        title=title,
        created=max((stage.created for stage in stages.values()), default=""),
        headline=_headline(view, stages, settings),
        last=f"class {plain(view.classes[-1], 60)}" if view.classes else "",
        columns=[f"class {plain(view.classes[c], 40)}" for c in columns],
        hidden_classes=len(view.classes) - len(columns),
        rows=rows,
        tail=tail if cut else [],
        communities=total,
        left_out=total - TOP - BOTTOM,
        intervals=bool(np.any(~np.isnan(view.lower))),
        anomalies=_anomalous(view, anomalies, settings) if anomalies else None,
        # Our own SVG, in which matplotlib has escaped every text.
        figures={
            name: markupsafe.Markup(svg.decode())  # noqa: S704
            for name, svg in figures.items()
        },
        hexagons=total > plots.SCATTER_LIMIT,
        dots=min(DOTS, total),
        settings=settings,
        quantifier=settings.quantifier,
        quantifier_text=QUANTIFIER_TEXT.get(settings.quantifier, ""),
        source=plain(str(quantify.get("source", "")), 120),
        warnings=_warnings(view, stages),
        stages=list(stages.values()),
        seconds=sum(stage.seconds for stage in stages.values()),
        facts=[(stage.name, _flat(stage.facts)) for stage in stages.values()],
        values=_flat(settings.model_dump()),
        versions=_versions(stages),
    )


def _facts(stages: Mapping[str, StageFacts], name: str) -> Mapping[str, Any]:
    return stages[name].facts if name in stages else {}


def _headline(
    view: PrevalenceView, stages: Mapping[str, StageFacts], settings: Settings
) -> list[tuple[str, str]]:
    """The page's first numbers: (what, how many)."""
    graph, quantify = _facts(stages, "graph"), _facts(stages, "quantify")
    numbers = [
        ("nodes", _count(graph.get("n_nodes"))),
        ("directed edges", _count(graph.get("n_edges"))),
        ("labelled nodes", _count(graph.get("n_labelled"))),
        ("communities", _count(len(view.names))),
        ("memberships", _count(quantify.get("n_memberships"))),
        ("classes", _count(len(view.classes))),
        ("quantifier", settings.quantifier),
    ]
    counts = graph.get("class_counts")
    if isinstance(counts, Mapping):
        counts = list(counts.values())
    if counts and view.classes and sum(counts):
        share = counts[-1] / sum(counts)
        numbers.append(
            (f"of the labelled are class {plain(view.classes[-1], 30)}", _share(share))
        )
    if view.classes:
        last, weight = view.prevalence[:, -1], view.n_nodes
        known = ~np.isnan(last) & (weight > 0)
        if known.any():
            mean = float(np.average(last[known], weights=weight[known]))
            numbers.append(
                (
                    f"of memberships: class {plain(view.classes[-1], 30)} (estimate)",
                    _share(mean),
                )
            )
    return [(what, number) for what, number in numbers if number]


def _rows(
    view: PrevalenceView, chosen: NDArray[np.int64], columns: Sequence[int], first: int
) -> list[dict[str, Any]]:
    rows = []
    for rank, k in enumerate(chosen.tolist(), start=first):
        remarks = []
        if not view.converged[k]:
            remarks.append("not converged")
        if view.flagged[k]:
            remarks.append("fit check warns")
        note = view.notes[k].as_py()
        if note:
            remarks.append(plain(note, 160))
        interval = ""
        if view.classes and not np.isnan(view.lower[k, -1] + view.upper[k, -1]):
            interval = f"{_share(view.lower[k, -1])} – {_share(view.upper[k, -1])}"
        rows.append(
            {
                "rank": rank,
                "name": view.name(k),
                "n_nodes": int(view.n_nodes[k]),
                "n_labelled": int(view.n_labelled[k]),
                "n_estimated": int(view.n_estimated[k]),
                "values": [float(view.prevalence[k, c]) for c in columns],
                "interval": interval,
                "remarks": "; ".join(remarks),
            }
        )
    return rows


def _anomalous(
    view: PrevalenceView, found: Anomalies, settings: Settings
) -> dict[str, Any]:
    """How many communities differ in the last class, and the largest differences."""
    effect, qvalue = found.effect[:, -1], found.qvalue[:, -1]
    with np.errstate(invalid="ignore"):
        differ = np.flatnonzero(qvalue <= settings.anomalies.rate)
    order = differ[np.lexsort((differ, -np.abs(effect[differ])))][:ANOMALIES_SHOWN]
    return {
        "count": len(differ),
        "compared": int(np.count_nonzero(~np.isnan(qvalue))),
        "rows": [
            {
                "name": view.name(k),
                "n_nodes": int(view.n_nodes[k]),
                "prevalence": float(view.prevalence[k, -1]),
                "reference": float(found.reference[k, -1]),
                "effect": f"{100 * float(effect[k]):+.1f}",
                "interval": " to ".join(
                    f"{100 * float(end[k, -1] - found.reference[k, -1]):+.1f}"
                    for end in (view.lower, view.upper)
                ),
                "qvalue": f"{float(qvalue[k]):.2g}",
            }
            for k in order.tolist()
        ],
    }


def _warnings(view: PrevalenceView, stages: Mapping[str, StageFacts]) -> list[str]:
    """What a reader must know before trusting a number; one sentence each."""
    found = []
    counts = dict(_facts(stages, "graph").get("counts") or {})
    quantify = _facts(stages, "quantify")
    stuck = int(np.count_nonzero(~view.converged))
    if stuck:
        found.append(
            f"{stuck:,} of {len(view.names):,} communities did not converge "
            "(column converged in prevalence.parquet): raise sld.max_iterations."
        )
    if view.classes:
        empty = int(np.count_nonzero(np.isnan(view.prevalence[:, -1])))
        if empty:
            found.append(
                f"{empty:,} communities have no prevalence: nothing to estimate from."
            )
    flagged = int(np.count_nonzero(view.flagged))
    if flagged:
        found.append(f"The fit check warns for {flagged:,} communities.")
    for number, text in (
        (
            counts.get("unknown_dropped"),
            "edges were dropped because an end is not in the node table.",
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
            found.append(f"{number:,} {text}")
    return found


def _versions(stages: Mapping[str, StageFacts]) -> list[tuple[str, str]]:
    """Packages and their versions; several when stages ran on different ones."""
    found: dict[str, list[str]] = {}
    for stage in stages.values():
        for package, version in stage.versions.items():
            seen = found.setdefault(package, [])
            if version not in seen:
                seen.append(version)
    return [(package, ", ".join(seen)) for package, seen in sorted(found.items())]


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested values as (dotted key, short text)."""
    found: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{prefix}{key}.")
        else:
            found.append((plain(f"{prefix}{key}", 80), _text(value)))
    return found


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        shown = ", ".join(_text(item) for item in value[:12])
        more = f", … ({len(value):,} in all)" if len(value) > 12 else ""
        return plain(shown + more, 400)
    return plain(str(value), 400)


def _count(number: Any) -> str:
    return "" if number is None else f"{int(number):,}"


def _share(value: float) -> str:
    """A proportion as per cent; empty for NaN."""
    return "" if np.isnan(value) else f"{100 * value:.1f} %"


def _figure(value: float) -> str:
    return "0" if np.isnan(value) else f"{100 * min(max(value, 0.0), 1.0):.1f}"
