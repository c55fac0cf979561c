"""The table of communities, by prevalence and by difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.config import Settings
from xnq_dist.core.pictures import plain
from xnq_dist.quantify.checks.anomalies import Anomalies
from xnq_dist.report.compared import ordered
from xnq_dist.report.page_facts import PageFacts
from xnq_dist.report.plots import shown_classes
from xnq_dist.report.sections import Section
from xnq_dist.report.view import PrevalenceView
from xnq_dist.report.wording import points, share, span

__all__ = ["RECORDS", "body"]

RECORDS = (Section(name="communities", title="Communities", rank=60),)

TOP, BOTTOM = 100, 20
"""Communities that the table shows when there are more than both together."""
CLASSES_SHOWN = 8


def body(facts: PageFacts) -> str:
    """The highest and lowest, or all."""
    view, settings = facts.view, facts.settings
    total = len(view.names)
    cut = total > TOP + BOTTOM
    # Of two classes one says it all.
    limit = 1 if len(view.classes) == 2 else CLASSES_SHOWN
    columns = shown_classes(view.prevalence, limit) if view.classes else []
    table = _Ranking.of(view, columns, facts.anomalies)
    by_effect = None
    if facts.anomalies is not None:
        by_effect = table.rows(table.by_effect[: TOP + BOTTOM], settings)
    return facts.render(
        TEMPLATE,
        columns=[f"class {plain(view.classes[c], 40)}" for c in columns],
        hidden_classes=len(view.classes) - len(columns) if limit > 1 else 0,
        rows=table.rows(view.ranked[:TOP] if cut else view.ranked, settings),
        tail=table.rows(view.ranked[-BOTTOM:], settings) if cut else [],
        by_effect=by_effect,
        communities=total,
        left_out=total - TOP - BOTTOM,
        intervals=view.has_intervals,
        benchmarked=view.has_benchmarks,
    )


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
            by_effect = _ranked_by_effect(view, anomalies)
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


def _ranked_by_effect(view: PrevalenceView, found: Anomalies) -> NDArray[np.int64]:
    """Communities by the size of the last class's effect, the largest first."""
    return ordered(np.abs(found.effect[:, -1]), view.n_nodes)


TEMPLATE = """\
{% set width = 5 + (columns | length) + (1 if intervals else 0) + (1 if benchmarked else 0) + (2 if by_effect is not none else 0) %}
{% macro head() %}
<thead><tr>
<th scope="col" class="n">#</th>
<th scope="col">community</th>
<th scope="col">{{ columns[0] }}</th>
{% if intervals %}
<th scope="col" class="n">interval</th>
{% endif %}
{% if benchmarked %}
<th scope="col" class="n">benchmarked</th>
{% endif %}
{% if by_effect is not none %}
<th scope="col" class="n">difference</th>
<th scope="col" class="n"># by difference</th>
{% endif %}
<th scope="col" class="n">members</th>
<th scope="col" class="n">labelled</th>
<th scope="col" class="n">estimated</th>
{% for name in columns[1:] %}
<th scope="col" class="n">{{ name }}</th>
{% endfor %}
</tr></thead>
{% endmacro %}
{% macro line(row) %}
<tr>
<td class="n">{{ row.rank | count }}</td>
<th scope="row">{{ row.name }}</th>
<td class="bar" style="background-size:{{ row["values"][0] | figure }}% 1.5em">{{ row["values"][0] | share or "–" }}</td>
{% if intervals %}<td class="n">{{ row.interval }}</td>{% endif %}

{% if benchmarked %}<td class="n">{{ row.benchmarked or "–" }}</td>{% endif %}

{% if by_effect is not none %}
<td class="n">{% if row.beyond %}<strong>{{ row.effect }} *</strong>{% else %}{{ row.effect or "–" }}{% endif %}</td>
<td class="n">{{ row.effect_rank | count if row.effect_rank else "–" }}</td>
{% endif %}
<td class="n">{{ row.n_nodes | count }}</td>
<td class="n">{{ row.n_labelled | count }}</td>
<td class="n">{{ row.n_estimated | count }}</td>
{% for value in row["values"][1:] %}
<td class="n">{{ value | share or "–" }}</td>
{% endfor %}
</tr>
{% if row.remarks %}
<tr class="remark"><td></td><td colspan="{{ width - 1 }}">{{ row.remarks }}</td></tr>
{% endif %}
{% endmacro %}
{% set star = " Differences are in percentage points; * beyond chance." if by_effect is not none else "" %}
{% if benchmarked %}{% set star = star ~ " Benchmarked: raked to the known shares or counts of the table that the setting benchmark names." %}{% endif %}
{% if rows %}
{% if by_effect is not none %}
<div class="tabs">
<input type="radio" name="order" id="by-prevalence" checked="checked" /><label for="by-prevalence">by prevalence</label>
<input type="radio" name="order" id="by-difference" /><label for="by-difference">by difference</label>
{% endif %}
<div class="scroll of-prevalence">
<table class="ranking">
<caption>{% if left_out > 0 %}The {{ rows | length }} communities with the highest prevalence of {{ last }} and the {{ tail | length }} with the
lowest, of {{ communities | count }}; all of them are in <code>prevalence.parquet</code>.{% else %}All {{ communities | count }} communities, by prevalence of
{{ last }}.{% endif %}{% if hidden_classes %} {{ hidden_classes }} more classes are in <code>prevalence.parquet</code>.{% endif %}{{ star }}</caption>
{{ head() }}<tbody>
{% for row in rows %}{{ line(row) }}{% endfor %}
{% if tail %}
<tr class="gap"><td colspan="{{ width }}">{{ left_out | count }} communities between</td></tr>
{% for row in tail %}{{ line(row) }}{% endfor %}
{% endif %}
</tbody>
</table>
</div>
{% if by_effect is not none %}
<div class="scroll of-difference">
<table class="ranking">
<caption>{% if left_out > 0 %}The {{ by_effect | length }} communities whose {{ last }} differs most, up or down, from
{% else %}All {{ communities | count }} communities, by how much their {{ last }} differs, up or down, from {% endif %}
{% if settings.anomalies.reference == "rest" %}the others together{% else %}the share of {{ settings.anomalies.reference | share }}{% endif %}{% if left_out > 0 %}; all of them are in <code>anomalies.parquet</code>{% endif %}.{{ star }}</caption>
{{ head() }}<tbody>
{% for row in by_effect %}{{ line(row) }}{% endfor %}
</tbody>
</table>
</div>
</div>
{% endif %}
{% else %}
<p>There are no communities.</p>
{% endif %}
"""
