"""Section on communities that differ beyond chance."""

from __future__ import annotations

import numpy as np

from xnq_dist.core.records import PartRecord
from xnq_dist.report.compared import SHOWN, largest
from xnq_dist.report.page_facts import PageFacts
from xnq_dist.report.wording import difference, points, probability

__all__ = ["RECORDS", "body"]

RECORDS = (PartRecord(name="beyond", title="Beyond chance", rank=40),)


def body(facts: PageFacts) -> str:
    """The number of communities that differ in the last class, and the largest ones."""
    view, settings, anomalies = facts.view, facts.settings, facts.anomalies
    if anomalies is None:
        return ""
    effect, qvalue = anomalies.effect[:, -1], anomalies.qvalue[:, -1]
    reference = anomalies.reference[:, -1]
    differ = qvalue <= settings.anomalies.rate
    chosen = largest(effect, differ, view.n_nodes)[:SHOWN]
    shown = {
        "count": int(differ.sum()),
        "above": int(np.count_nonzero(differ & (effect > 0))),
        "compared": int(np.count_nonzero(~np.isnan(qvalue))),
        "rows": [
            {
                "name": view.name(k),
                "n_nodes": int(view.n_nodes[k]),
                "prevalence": float(view.prevalence[k, -1]),
                "reference": float(reference[k]),
                "effect": points(float(effect[k])),
                "interval": difference(
                    *(float(e[k, -1] - reference[k]) for e in (view.lower, view.upper))
                ),
                "qvalue": probability(float(qvalue[k])),
            }
            for k in chosen.tolist()
        ],
    }
    return facts.render(TEMPLATE, anomalies=shown)


TEMPLATE = """\
{% if anomalies.rows %}
<p>{{ anomalies.count | count }} of {{ anomalies.compared | count }} communities differ in {{ last }} from
{% if settings.anomalies.reference == "rest" %}the others together{% else %}the share of {{ settings.anomalies.reference | share }}{% endif %} by more than chance explains: {{ anomalies.above | count }} are above, {{ (anomalies.count - anomalies.above) | count }} below. At most {{ settings.anomalies.rate | share }} of them are expected to be
false discoveries (Benjamini and Hochberg). <code>anomalies.parquet</code> lists every community with its difference, interval, p-value, q-value and ranks.</p>
<div class="scroll">
<table>
<caption>The largest differences, in percentage points.</caption>
<thead><tr><th scope="col">community</th><th scope="col" class="n">members</th><th scope="col" class="n">{{ last }}</th><th scope="col" class="n">compared with</th><th scope="col" class="n">difference</th><th scope="col" class="n">interval</th><th scope="col" class="n">q-value</th></tr></thead>
<tbody>
{% for row in anomalies.rows %}
<tr><th scope="row">{{ row.name }}</th><td class="n">{{ row.n_nodes | count }}</td><td class="n">{{ row.prevalence | share }}</td><td class="n">{{ row.reference | share }}</td><td class="n">{{ row.effect }}</td><td class="n">{{ row.interval }}</td><td class="n">{{ row.qvalue }}</td></tr>
{% endfor %}
</tbody>
</table>
</div>
{% else %}
<p>None of {{ anomalies.compared | count }} communities differs in {{ last }} beyond chance.
<code>anomalies.parquet</code> lists all of them.</p>
{% endif %}
<p class="muted">A difference is beyond chance if random draws of the members from
{% if settings.anomalies.reference == "rest" %}the other communities (without those that differ strongly){% else %}a population with that share{% endif %} would rarely give it. Known labels
and posteriors are tested together, so a p-value can be small although the interval of the estimate contains the reference. A large community can differ beyond chance by very little: look at the difference, not only at the
q-value. The test does not show why a community differs.</p>
"""
