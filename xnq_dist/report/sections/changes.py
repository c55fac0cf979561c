"""Section on changes since earlier results."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.pictures import plain
from xnq_dist.core.records import PartRecord
from xnq_dist.report.changed import Changed
from xnq_dist.report.compared import SHOWN, largest
from xnq_dist.report.page_facts import PageFacts
from xnq_dist.report.view import PrevalenceView
from xnq_dist.report.wording import difference, points, probability

__all__ = ["RECORDS", "body"]

RECORDS = (PartRecord(name="changes", title="Since the earlier results", rank=30),)

NAMED = 12
"""Maximum number of new or gone communities named in a sentence."""


def body(facts: PageFacts) -> str:
    """Changes of the last class since the earlier results."""
    view, settings, changed = facts.view, facts.settings, facts.earlier
    if not isinstance(changed, Changed):
        why = plain(changed or "", 600)
        return why and facts.render(TEMPLATE, changes=None, not_compared=why)
    changes, earlier = changed.changes, changed.earlier
    effect, qvalue = changes.effect[:, -1], changes.qvalue[:, -1]
    moved = qvalue <= settings.anomalies.rate
    chosen = largest(effect, moved, view.n_nodes)[:SHOWN]
    new, gone, seed = changed.new, changed.gone, changed.seed
    shown = {
        "where": earlier.where,
        "created": earlier.created,
        "count": int(moved.sum()),
        "up": int(np.count_nonzero(moved & (effect > 0))),
        "both": int(np.count_nonzero(changed.place >= 0)),
        "compared": int(changed.compared.sum()),
        "new": len(new),
        "new_names": _named(view, new),
        "gone": len(gone),
        "gone_names": _named(earlier.view, gone),
        "seed": None
        if seed is None
        else {
            "communities": seed.communities,
            "error": f"{100 * seed.error:.1f}",
            "largest": f"{100 * seed.largest:.1f}",
            "claimed": f"{100 * seed.claimed:.1f}",
            "outside": seed.outside,
        },
        "rows": [
            {
                "name": view.name(k),
                "n_nodes": int(view.n_nodes[k]),
                "n_before": int(earlier.view.n_nodes[changed.place[k]]),
                "before": float(changed.before[0][k, -1]),
                "prevalence": float(view.prevalence[k, -1]),
                "effect": points(float(effect[k])),
                "interval": difference(
                    float(changes.lower[k, -1]), float(changes.upper[k, -1])
                ),
                "qvalue": probability(float(qvalue[k])),
            }
            for k in chosen.tolist()
        ],
    }
    return facts.render(TEMPLATE, changes=shown)


def _named(view: PrevalenceView, some: NDArray[np.int64]) -> list[str]:
    """Names of the largest of some communities."""
    order = np.lexsort((some, -view.n_nodes[some]))
    return [view.name(k) for k in some[order][:NAMED].tolist()]


TEMPLATE = """\
{% if changes %}
<p>Compared with {{ changes.where }}, made {{ changes.created }}: {{ changes.both | count }} communities are in both, {{ changes.new | count }}
{{ "is" if changes.new == 1 else "are" }} new, {{ changes.gone | count }} {{ "is" if changes.gone == 1 else "are" }} gone. <code>changes.parquet</code> lists all of them.</p>
{% if changes.rows %}
<p>The prevalence of {{ last }} changed in {{ changes.count | count }} of {{ changes.compared | count }} compared communities ({{ changes.up | count }} up,
{{ (changes.count - changes.up) | count }} down) by more than the uncertainty of the two results explains. At most
{{ settings.anomalies.rate | share }} of these changes are expected to be false discoveries (Benjamini and Hochberg).</p>
<div class="scroll">
<table>
<caption>The largest changes, in percentage points.</caption>
<thead><tr><th scope="col">community</th><th scope="col" class="n">members then</th><th scope="col" class="n">now</th><th scope="col" class="n">{{ last }} then</th><th scope="col" class="n">now</th><th scope="col" class="n">change</th><th scope="col" class="n">interval</th><th scope="col" class="n">q-value</th></tr></thead>
<tbody>
{% for row in changes.rows %}
<tr><th scope="row">{{ row.name }}</th><td class="n">{{ row.n_before | count }}</td><td class="n">{{ row.n_nodes | count }}</td><td class="n">{{ row.before | share }}</td><td class="n">{{ row.prevalence | share }}</td><td class="n">{{ row.effect }}</td><td class="n">{{ row.interval }}</td><td class="n">{{ row.qvalue }}</td></tr>
{% endfor %}
</tbody>
</table>
</div>
{% else %}
<p>The prevalence of {{ last }} changed in none of {{ changes.compared | count }} compared communities by more than the uncertainty of the two results
explains.</p>
{% endif %}
{% if changes.new_names %}
<p>New: {{ changes.new_names | join(", ") }}{% if changes.new > changes.new_names | length %}, and {{ (changes.new - changes.new_names | length) | count }} more{% endif %}.</p>
{% endif %}
{% if changes.gone_names %}
<p>Gone: {{ changes.gone_names | join(", ") }}{% if changes.gone > changes.gone_names | length %}, and {{ (changes.gone - changes.gone_names | length) | count }} more{% endif %}.</p>
{% endif %}
<p class="muted">The intervals assume that the two results are independent. Errors of what they share (the graph, the labels, the readout) have the
same direction in both and cancel in the difference, so the intervals tend to be too wide: small changes may be missed. In a community whose
members are all labelled, every change is exact.</p>
{% if changes.seed %}
<div class="note" role="note">
<p><strong>Effect of the seed.</strong> These two runs used the same tables and settings and differ only in the seed, so no change
is real. Over {{ changes.seed.communities | count }} communities, the seed changes the prevalence of {{ last }} by {{ changes.seed.error }} percentage points (standard
deviation); the two estimates for a community differ by at most {{ changes.seed.largest }}. The standard error behind the intervals, for all sources of error
together, is {{ changes.seed.claimed }}. In {{ changes.seed.outside | count }} communities the other run&#8217;s estimate is outside this run&#8217;s interval.</p>
</div>
{% endif %}
{% else %}
<p>Not compared: {{ not_compared }}.</p>
{% endif %}
"""
