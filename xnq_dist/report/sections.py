"""The sections of the report page.

A section is its heading and a function of the page, which returns the HTML below the
heading, or an empty text if the section does not apply. `Page.render` fills in a
template of the folder `templates` and escapes texts from the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml

from xnq_dist._version import __version__
from xnq_dist.core.records import METHODS, QUANTIFIERS
from xnq_dist.core.redaction import plain, redacted
from xnq_dist.core.stages import ELSEWHERE
from xnq_dist.report.page_data import Page
from xnq_dist.report.verdict import notes
from xnq_dist.report.wording import count, points, share, span
from xnq_dist.steps.against_rest import reference_of
from xnq_dist.steps.history import History, is_named
from xnq_dist.steps.view import QUALITIES

__all__ = ["SECTIONS", "row"]

ROWS = 25
"""Rows of the table in the file; the page's script shows all."""

SHOWN = 15
"""Number of communities in the table."""
NAMED = 12
"""Maximum number of new or gone communities named in a sentence."""

TOP = 10
"""Number of communities with the highest shares in the table."""
RUNS = 8
"""Maximum number of runs, the newest ones."""

CLASSES, FINDINGS = 12, 20
"""Maximum numbers of classes and of remarks in the section."""


def communities(facts: Page) -> str:
    """The first communities by the lower end of the interval; the script has all."""
    view = facts.view
    labels = facts.of("quantify").get("labels") or {}
    chosen = view.ranked[:ROWS].tolist()
    return facts.render(
        "communities.html.j2",
        notes=notes(facts),
        biased=labels.get("verdict") not in (None, "none"),
        rows=[row(facts, k) for k in chosen],
        suppressed=int(view.suppressed.sum()),
        left_out=len(view.names) - len(chosen),
        classes_left_out=[
            name for c, name in enumerate(view.classes) if c not in facts.shown_classes
        ],
        communities_left_out=len(view.names) - len(facts.order),
        reference=share(reference_of(view)) if view.has_intervals else "",
    )


def row(facts: Page, k: int) -> dict[str, Any]:
    """One community in the last class, in words."""
    view = facts.view
    gone = bool(view.suppressed[k])
    effect = points(float(facts.compared["effect"][k, -1]))
    return {
        "name": view.name(k),
        "n_nodes": int(view.n_nodes[k]),
        "labelled": "" if gone else count(view.n_labelled[k]),
        "share": "suppressed" if gone else share(float(view.prevalence[k, -1])),
        "interval": span(view.lower[k, -1], view.upper[k, -1]),
        "remarks": plain(view.notes[k].as_py() or "", 160),
        "effect": effect + (" *" if facts.beyond[k, -1] else ""),
        "quality": QUALITIES[view.quality[k, -1]],
    }


def glance(facts: Page) -> str:
    """A place for every plot, with its caption."""
    return facts.render("glance.html.j2")


def changes(facts: Page) -> str:
    """Changes of the last class since the earlier results."""
    earlier, table = facts.earlier, facts.tables.get("changes")
    if table is None or earlier is None:
        why = facts.facts.get("not_compared", "")
        return why and facts.render("changes.html.j2", changes=None, not_compared=why)
    rows = table.filter(is_named(table["class"], facts.view.classes[-1]))
    moved = rows.filter(pc.fill_null(rows["changed"], False))
    new, gone = (
        rows.filter(pc.equal(rows["status"], status)) for status in ("new", "gone")
    )
    shown = {
        "created": earlier.manifest.facts["created"],
        "count": len(moved),
        "up": pc.sum(pc.greater(moved["effect"], 0)).as_py() or 0,
        "both": len(rows) - len(new) - len(gone),
        "compared": len(rows) - rows["qvalue"].null_count,
        "new": len(new),
        "new_names": _named(new, "n_nodes"),
        "gone": len(gone),
        "gone_names": _named(gone, "n_nodes_before"),
        "rows": moved.slice(0, SHOWN).to_pylist(),
    }
    return facts.render("changes.html.j2", changes=shown)


def _named(rows: pa.Table, size: str) -> list[Any]:
    """Names of the largest of some communities."""
    order = pc.sort_indices(rows, [(size, "descending")])
    return list(rows["community"].take(order[:NAMED]).to_pylist())


def history(facts: Page) -> str:
    """Communities by run, from two runs on."""
    every, view = facts.tables.get("history"), facts.view
    if every is None:
        return ""
    history, of_class = History(every), view.classes[-1]
    runs = history.runs()
    if len(runs) < 2:
        return ""
    shown = runs[-RUNS:]
    changed = history.changed(of_class)["community"][:SHOWN]
    top = view.names.take(view.ranked[~view.suppressed[view.ranked]][:TOP])
    names = dict.fromkeys(map(str, [*changed.to_pylist(), *top.to_pylist()]))
    rows = history.select(of_class=of_class)
    text = pc.cast(rows["community"], pa.string())
    rows = rows.filter(pc.is_in(text, value_set=pa.array(names, pa.string())))
    shares = {
        (str(row["community"]), row["run"]): share(row["prevalence"])
        for row in rows.filter(pc.is_valid(rows["prevalence"])).to_pylist()
    }
    return facts.render(
        "history.html.j2",
        rows=[
            {
                "name": name,
                "changed": place < len(changed),
                "shares": [shares.get((name, run.run), "") for run in shown],
            }
            for place, name in enumerate(names)
        ],
        dates=[run.created[:16].replace("T", " ") for run in shown],
        runs=len(runs),
        since=runs[0].created[:10],
        others=history.others,
    )


def beyond(facts: Page) -> str:
    """The number of communities that differ in the last class; filters show them."""
    if not facts.view.has_intervals:
        return ""
    differ = facts.beyond[:, -1]
    return facts.render(
        "beyond.html.j2",
        count=int(differ.sum()),
        above=int(np.count_nonzero(differ & (facts.compared["effect"][:, -1] > 0))),
        compared=int(np.count_nonzero(~np.isnan(facts.compared["qvalue"][:, -1]))),
    )


def inputs(facts: Page) -> str:
    """Numbers of rows read; remarks of the profile, if there is one."""
    graph, labels, quantify = map(facts.of, ("graph", "labels", "quantify"))
    rows = [
        ("nodes", graph.get("n_nodes"), f"{graph.get('n_features') or 0} features"),
        ("edges", graph.get("n_edges"), _edges(graph)),
        ("labelled nodes", labels.get("n_labelled"), _classes(facts, labels)),
        ("communities", len(facts.view.names), str(quantify.get("source") or "")),
        ("memberships", quantify.get("n_memberships"), ""),
    ]
    found = [
        plain(finding["text"], 400)
        for finding in facts.profile.get("findings", ())
        if finding["level"] == "note"
    ]
    return facts.render(
        "inputs.html.j2",
        rows=rows,
        findings=found[:FINDINGS],
    )


def _edges(graph: Mapping[str, Any]) -> str:
    counts = graph.get("counts") or {}
    remarks = [f"{counts['edges_read']:,} rows read"] if "edges_read" in counts else []
    remarks.append("directed" if graph.get("directed") else "both directions counted")
    if graph.get("weighted"):
        remarks.append("weighted")
    return "; ".join(remarks)


def _classes(facts: Page, labels: Mapping[str, Any]) -> str:
    """Labelled nodes by class; numbers below 10 are not shown."""
    names, counts = labels.get("classes") or (), labels.get("class_counts") or ()
    parts = [
        f"{facts.naming.of_class(str(name), 30)}: "
        + (f"{number:,}" if number >= 10 else "fewer than 10")
        for name, number in zip(names, counts, strict=False)
    ]
    more = len(parts) - CLASSES
    return "; ".join(parts[:CLASSES]) + (f"; {more} more classes" if more > 0 else "")


def computed(facts: Page) -> str:
    """The method, the quantifier and the meaning of the numbers."""
    readout, quantify = facts.of("readout"), facts.of("quantify")
    return facts.render(
        "computed.html.j2",
        method=METHODS[facts.settings.method],
        quantifier_text=QUANTIFIERS[facts.settings.quantifier].text,
        source=quantify.get("source", ""),
        pooled=quantify.get("pooled"),
        skill=readout.get("skill"),
        scores=readout.get("scores"),
    )


def run(facts: Page) -> str:
    """Stages with their times; settings and versions are folded."""
    *_, last = facts.stages.values()
    settings = facts.settings.model_dump(mode="json", exclude=ELSEWHERE)
    return facts.render(
        "run.html.j2",
        texts=[
            (title, yaml.safe_dump(redacted(values), sort_keys=False))
            for title, values in (
                (f"Settings (seed {facts.settings.seed})", settings),
                ("Versions", dict(last.versions)),
            )
        ],
    )


def cite(facts: Page) -> str:
    """The citation, with the id of the run."""
    return facts.render("cite.html.j2", version=__version__)


SECTIONS: dict[str, tuple[str, Callable[[Page], str]]] = {
    "communities": ("Communities", communities),
    "glance": ("Plots", glance),
    "changes": ("Since the earlier results", changes),
    "history": ("History", history),
    "beyond": ("Beyond chance", beyond),
    "inputs": ("Inputs", inputs),
    "computed": ("What was computed", computed),
    "run": ("The run", run),
    "cite": ("Cite", cite),
}
"""All sections by name, in their order on the page."""
