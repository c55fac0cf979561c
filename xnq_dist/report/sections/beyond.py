"""Communities that differ beyond chance."""

from __future__ import annotations

import numpy as np

from xnq_dist.core.records import PartRecord
from xnq_dist.report.compared import SHOWN, largest
from xnq_dist.report.page_facts import PageFacts
from xnq_dist.report.wording import difference, points, probability

__all__ = ["RECORDS", "body"]

RECORDS = (PartRecord(name="beyond", title="Beyond chance", rank=40),)


def body(facts: PageFacts) -> str:
    """How many communities differ in the last class, and the largest differences."""
    view, settings, found = facts.view, facts.settings, facts.anomalies
    if found is None:
        return ""
    effect, qvalue = found.effect[:, -1], found.qvalue[:, -1]
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
                "reference": float(found.reference[k, -1]),
                "effect": points(float(effect[k])),
                "interval": difference(
                    *(
                        float(end[k, -1] - found.reference[k, -1])
                        for end in (view.lower, view.upper)
                    )
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
{% if settings.anomalies.reference == "rest" %}the others together{% else %}the share of {{ settings.anomalies.reference | share }}{% endif %} by more than chance explains ({{ anomalies.above | count }} above, {{ (anomalies.count - anomalies.above) | count }} below); of such at most {{ settings.anomalies.rate | share }} are expected to be
false (Benjamini and Hochberg). Every community is in <code>anomalies.parquet</code>, with its effect, interval, p-value, q-value and both ranks.</p>
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
All are in <code>anomalies.parquet</code>.</p>
{% endif %}
<p class="muted">Chance means: as if the members had been drawn at random from
{% if settings.anomalies.reference == "rest" %}the others, those that differ by far left out{% else %}a population with that share{% endif %}. Known labels
and posteriors are tested together, so a p-value can be small where the interval of the estimate still holds the reference. A large community can differ beyond chance by very little: look at the difference, not at the q-value
alone. That a community differs says nothing of why.</p>
"""
