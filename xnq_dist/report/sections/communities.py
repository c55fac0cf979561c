"""Section with the table of communities, by prevalence and by difference."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.pictures import plain
from xnq_dist.core.records import PartRecord
from xnq_dist.report.compared import ordered
from xnq_dist.report.page_facts import PageFacts
from xnq_dist.report.plots import shown_classes
from xnq_dist.report.view import PrevalenceView
from xnq_dist.report.wording import points, share, span

__all__ = ["RECORDS", "body"]

RECORDS = (PartRecord(name="communities", title="Communities", rank=60),)

TOP, BOTTOM = 100, 20
"""Rows from the top and the bottom of the table if there are more communities."""
CLASSES_SHOWN = 8
"""Maximum number of classes in the table."""


def body(facts: PageFacts) -> str:
    """The communities of the highest and lowest prevalence, or all communities."""
    view, settings = facts.view, facts.settings
    total = len(view.names)
    shortened = total > TOP + BOTTOM
    # The share of one of two classes determines that of the other.
    limit = 1 if len(view.classes) == 2 else CLASSES_SHOWN
    columns = shown_classes(view.prevalence, limit) if view.classes else []
    anomalies, by_effect = facts.anomalies, None
    effects = np.full(total, np.nan) if anomalies is None else anomalies.effect[:, -1]
    place, effect_place = np.empty((2, total), np.int64)
    order = ordered(np.abs(effects), view.n_nodes)
    for row, places in (place, view.ranked), (effect_place, order):
        row[places] = np.arange(1, total + 1)

    def rows(chosen: NDArray[np.int64]) -> list[dict[str, Any]]:
        """Table rows of the chosen communities."""
        return [line(k) for k in chosen.tolist()]

    def line(k: int) -> dict[str, Any]:
        has, effect = bool(view.classes), float(effects[k])
        value, *ends = view.benchmarked[k].tolist()
        return {
            "rank": int(place[k]),
            "name": view.name(k),
            "n_nodes": int(view.n_nodes[k]),
            "n_labelled": int(view.n_labelled[k]),
            "n_estimated": int(view.n_estimated[k]),
            "values": [float(view.prevalence[k, c]) for c in columns],
            "interval": span(view.lower[k, -1], view.upper[k, -1]) if has else "",
            "benchmarked": f"{share(value)} {span(*ends)}".strip() if has else "",
            "remarks": "; ".join(_remarks(view, k)),
            "effect": points(effect),
            "effect_rank": 0 if np.isnan(effect) else int(effect_place[k]),
            "beyond": anomalies is not None
            and anomalies.qvalue[k, -1] <= settings.anomalies.rate,
        }

    if anomalies is not None:
        by_effect = rows(order[: TOP + BOTTOM])
    return facts.render(
        TEMPLATE,
        columns=[f"class {plain(view.classes[c], 40)}" for c in columns],
        hidden_classes=len(view.classes) - len(columns) if limit > 1 else 0,
        rows=rows(view.ranked[:TOP] if shortened else view.ranked),
        tail=rows(view.ranked[-BOTTOM:]) if shortened else [],
        by_effect=by_effect,
        communities=total,
        left_out=total - TOP - BOTTOM,
        intervals=view.has_intervals,
        benchmarked=view.has_benchmarks,
    )


def _remarks(view: PrevalenceView, k: int) -> list[str]:
    remarks = []
    if not view.converged[k]:
        remarks.append("not converged")
    if view.flagged[k]:
        remarks.append("large expected error")
    note = view.notes[k].as_py()
    if note:
        remarks.append(plain(note, 160))
    return remarks


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
{% if benchmarked %}{% set star = star ~ " Benchmarked: raked to the known shares or counts in the table of the setting benchmark." %}{% endif %}
{% if rows %}
{% if by_effect is not none %}
<div class="tabs">
<input type="radio" name="order" id="by-prevalence" checked="checked" /><label for="by-prevalence">by prevalence</label>
<input type="radio" name="order" id="by-difference" /><label for="by-difference">by difference</label>
{% endif %}
<div class="scroll of-prevalence">
<table class="ranking">
<caption>{% if left_out > 0 %}The {{ rows | length }} communities with the highest prevalence of {{ last }} and the {{ tail | length }} with the
lowest, of {{ communities | count }}; <code>prevalence.parquet</code> lists all of them.{% else %}All {{ communities | count }} communities, by prevalence of
{{ last }}.{% endif %}{% if hidden_classes %} <code>prevalence.parquet</code> has {{ hidden_classes }} more classes.{% endif %}{{ star }}</caption>
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
{% if settings.anomalies.reference == "rest" %}the others together{% else %}the share of {{ settings.anomalies.reference | share }}{% endif %}{% if left_out > 0 %}; <code>anomalies.parquet</code> lists all of them{% endif %}.{{ star }}</caption>
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
