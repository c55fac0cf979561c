"""The report page: plain tables in, one self-contained HTML file out; no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xnq_dist.core.config import Settings
from xnq_dist.core.pictures import plain
from xnq_dist.core.quantifiers import record_of
from xnq_dist.core.store import SetAside
from xnq_dist.quantify.checks.anomalies import Anomalies
from xnq_dist.quantify.checks.quality import PUBLISHABLE
from xnq_dist.report import plots
from xnq_dist.report.changed import Changed
from xnq_dist.report.funnel import DRAWN_ALONE, Funnel, funnel
from xnq_dist.report.sections import (
    anomalous,
    changes_section,
    fit_section,
    ranked_by_effect,
)
from xnq_dist.report.view import PrevalenceView
from xnq_dist.report.wording import count, difference, figure, points, share, span
from xnq_dist.selection.words import sentences

__all__ = ["StageFacts", "page", "plot_files"]

TOP, BOTTOM = 100, 20
"""Communities that the table shows when there are more than both together."""
CLASSES_SHOWN = 8
DOTS = 30
"""Communities in the plot of the highest prevalences."""


@dataclass(frozen=True)
class StageFacts:
    """What the page says of one stage."""

    name: str
    seconds: float
    facts: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    created: str = ""


def plot_files(
    view: PrevalenceView,
    stages: Mapping[str, StageFacts],
    partitions: pa.Table,
    settings: Settings | None = None,
    anomalies: Anomalies | None = None,
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
        made["size"] = funnel(Funnel.of(view, anomalies, settings or Settings()), name)
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
    earlier: Changed | str | None = None,
    aside: Sequence[SetAside] = (),
    totals: pa.Table | None = None,
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
    earlier
        Earlier results beside these, or why they cannot be; None: there are none.
    aside
        What was damaged and set aside since the last version.
    totals
        The whole graph (schema ``totals``); None: nothing is said of it.
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
    environment.filters |= {"count": count, "share": share, "figure": figure}
    quantify = _facts(stages, "quantify")
    total = len(view.names)
    cut = total > TOP + BOTTOM
    # Of two classes one says it all.
    limit = 1 if len(view.classes) == 2 else CLASSES_SHOWN
    columns = plots.shown_classes(view.prevalence, limit) if view.classes else []
    table = _Ranking.of(view, columns, anomalies)
    by_effect = None
    if anomalies is not None:
        by_effect = table.rows(table.by_effect[: TOP + BOTTOM], settings)
    return environment.get_template("report.html.j2").render(
        title=title,
        created=max((stage.created for stage in stages.values()), default=""),
        headline=_headline(view, stages, settings, totals),
        labels=[plain(text, 1000) for text in _labels(quantify, settings)],
        last=f"class {plain(view.classes[-1], 60)}" if view.classes else "",
        columns=[f"class {plain(view.classes[c], 40)}" for c in columns],
        hidden_classes=len(view.classes) - len(columns) if limit > 1 else 0,
        rows=table.rows(view.ranked[:TOP] if cut else view.ranked, settings),
        tail=table.rows(view.ranked[-BOTTOM:], settings) if cut else [],
        by_effect=by_effect,
        communities=total,
        left_out=total - TOP - BOTTOM,
        intervals=view.has_intervals,
        benchmarked=view.has_benchmarks,
        anomalies=anomalous(view, anomalies, settings) if anomalies else None,
        changes=changes_section(view, earlier, settings)
        if isinstance(earlier, Changed)
        else None,
        not_compared=plain(earlier, 600) if isinstance(earlier, str) else "",
        fit=fit_section(view, settings),
        # Our own SVG, in which matplotlib has escaped every text.
        figures={
            name: markupsafe.Markup(svg.decode())  # noqa: S704
            for name, svg in figures.items()
        },
        hexagons=total > DRAWN_ALONE,
        dots=min(DOTS, total),
        settings=settings,
        quantifier=settings.quantifier,
        quantifier_text=record_of(settings.quantifier).text,
        source=plain(str(quantify.get("source", "")), 120),
        warnings=[*_warnings(view, stages), *map(_set_aside, aside)],
        stages=list(stages.values()),
        seconds=sum(stage.seconds for stage in stages.values()),
        facts=[(stage.name, _flat(stage.facts)) for stage in stages.values()],
        values=_flat(settings.model_dump()),
        versions=_versions(stages),
    )


def _facts(stages: Mapping[str, StageFacts], name: str) -> Mapping[str, Any]:
    return stages[name].facts if name in stages else {}


def _labels(quantify: Mapping[str, Any], settings: Settings) -> list[str]:
    """How the labelled nodes were chosen, and what follows: one sentence each."""
    found = quantify.get("labels")
    if not found or settings.quantifier != "auto":
        return []
    return sentences(found, settings.intervals.level)


def _headline(
    view: PrevalenceView,
    stages: Mapping[str, StageFacts],
    settings: Settings,
    totals: pa.Table | None,
) -> list[tuple[str, str]]:
    """The page's first numbers: (what, how many)."""
    graph, quantify = _facts(stages, "graph"), _facts(stages, "quantify")
    labels = _facts(stages, "labels")
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
        own = counts[-1] / sum(counts)
        numbers.append(
            (f"of the labelled are class {plain(view.classes[-1], 30)}", share(own))
        )
    if view.classes and totals is not None:
        numbers.append(_whole(totals, view.classes[-1], settings))
    skill = _facts(stages, "readout").get("skill")
    if skill:
        ends = difference(skill["lower"], skill["upper"])
        what = f"of the class shares' log-loss is saved by the posteriors ({ends} %)"
        numbers.append((what, share(skill["value"])))
    held = quantify.get("own_coverage")
    if held:
        what = (
            f"of the {held['groups']:,} groups of the graph, each held out with all "
            f"its labels, lie in their interval (goal "
            f"{100 * settings.intervals.level:g} %; mean error "
            f"{100 * held['error']:.1f}, mean width {100 * held['width']:.0f} points)"
        )
        numbers.append((what, share(held["covered"])))
    judged = [quality for quality in view.quality.tolist() if quality is not None]
    if judged:
        fit = f"{judged.count(PUBLISHABLE):,} of {len(judged):,}"
        numbers.append(("estimates are publishable (column quality)", fit))
    return [(what, number) for what, number in numbers if number]


def _whole(totals: pa.Table, name: str, settings: Settings) -> tuple[str, str]:
    """The whole graph's estimate of a class, with its interval."""
    rows = [row for row in totals.to_pylist() if row["class"] == name]
    row = rows[0]
    nodes = "unlabelled nodes" if settings.labelled == "exclude" else "nodes"
    what = f"of all {nodes} are class {plain(name, 30)} (estimate"
    if row["lower"] is not None:
        level = f"{100 * settings.intervals.level:g} %"
        what += f"; {level} interval {span(row['lower'], row['upper'])}"
    if row["benchmarked"] is not None:
        what += f"; raked to the benchmarks {share(row['benchmarked'])}"
    number = "" if row["prevalence"] is None else share(row["prevalence"])
    return f"{what})", number


@dataclass(frozen=True, eq=False)
class _Ranking:
    """Rows of the table of communities, each with its place in both orders."""

    view: PrevalenceView
    columns: Sequence[int]
    anomalies: Anomalies | None
    place: NDArray[np.int64]
    """By prevalence, from 1, shape (K,)."""
    by_effect: NDArray[np.int64]
    effect_place: NDArray[np.int64]

    @classmethod
    def of(
        cls, view: PrevalenceView, columns: Sequence[int], anomalies: Anomalies | None
    ) -> _Ranking:
        by_effect = view.ranked
        if anomalies is not None:
            by_effect = ranked_by_effect(view, anomalies)
        places = np.empty((2, len(view.names)), np.int64)
        for row, order in zip(places, (view.ranked, by_effect), strict=True):
            row[order] = np.arange(1, len(order) + 1)
        return cls(view, columns, anomalies, places[0], by_effect, places[1])

    def rows(
        self, chosen: NDArray[np.int64], settings: Settings
    ) -> list[dict[str, Any]]:
        """What the table says of some communities."""
        return [self._row(k, settings) for k in chosen.tolist()]

    def _row(self, k: int, settings: Settings) -> dict[str, Any]:
        view = self.view
        row = {
            "rank": int(self.place[k]),
            "name": view.name(k),
            "n_nodes": int(view.n_nodes[k]),
            "n_labelled": int(view.n_labelled[k]),
            "n_estimated": int(view.n_estimated[k]),
            "values": [float(view.prevalence[k, c]) for c in self.columns],
            "interval": "",
            "benchmarked": "",
            "remarks": "; ".join(_remarks(view, k)),
            "effect": "",
            "effect_rank": 0,
            "beyond": False,
        }
        if view.classes:
            row["interval"] = span(view.lower[k, -1], view.upper[k, -1])
            value, *ends = view.benchmarked[k].tolist()
            row["benchmarked"] = f"{share(value)} {span(*ends)}".strip()
        if self.anomalies is not None:
            effect = float(self.anomalies.effect[k, -1])
            row["effect"] = points(effect)
            row["effect_rank"] = 0 if np.isnan(effect) else int(self.effect_place[k])
            q = float(self.anomalies.qvalue[k, -1])
            row["beyond"] = q <= settings.anomalies.rate
        return row


def _remarks(view: PrevalenceView, k: int) -> list[str]:
    found = []
    if not view.converged[k]:
        found.append("not converged")
    if view.flagged[k]:
        found.append("large expected error")
    note = view.notes[k].as_py()
    if note:
        found.append(plain(note, 160))
    return found


def _warnings(view: PrevalenceView, stages: Mapping[str, StageFacts]) -> list[str]:
    """What a reader must know before trusting a number; one sentence each."""
    found = []
    counts = dict(_facts(stages, "graph").get("counts") or {})
    quantify = _facts(stages, "quantify")
    skill = _facts(stages, "readout").get("skill")
    if skill and skill["lower"] <= 0:
        found.append(
            "The posteriors are not shown to be better than the class shares alone: "
            "every estimate is drawn to the shares among the labels."
        )
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
        found.append(
            f"{flagged:,} communities have a large expected error: see Fit check below."
        )
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


def _set_aside(entry: SetAside) -> str:
    """What was damaged, for a reader."""
    what = plain(f"{entry.name} was damaged ({entry.reason})", 400)
    return f"{what}: it was set aside in quarantine/ and done again ({entry.time})."


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
