"""Whose expected error is large, and where labels disagree with posteriors."""

from __future__ import annotations

import numpy as np
from scipy.special import bdtrc

from xnq_dist.core.records import PartRecord
from xnq_dist.quantify.checks.fit_check import expected_errors
from xnq_dist.report.compared import SHOWN, ordered
from xnq_dist.report.page_facts import PageFacts

__all__ = ["RECORDS", "body"]

RECORDS = (PartRecord(name="fit", title="Fit check", rank=50),)


def body(facts: PageFacts) -> str:
    """Whose expected error is large, and whether more labels disagree than by chance.

    More than by chance: the count has a probability below 1 % where all p-values are
    uniform.
    """
    view, settings = facts.view, facts.settings
    error = expected_errors(view.se) if view.classes else np.empty(0)
    flagged = np.flatnonzero(view.flagged)
    chosen = flagged[ordered(error[flagged], view.n_nodes[flagged])][:SHOWN]
    pvalue, alpha = view.fit_pvalue, settings.fit.alpha
    checked = int(np.count_nonzero(~np.isnan(pvalue)))
    disagree = int(np.count_nonzero(pvalue < alpha))
    fit = {
        "judged": int(np.count_nonzero(~np.isnan(error))),
        "flagged": len(flagged),
        "threshold": f"{100 * settings.fit.error:g}",
        "checked": checked,
        "disagree": disagree,
        "expected": round(alpha * checked),
        "more": disagree > 0 and bdtrc(disagree - 1, checked, alpha) < 0.01,
        "rows": [
            {
                "name": view.name(k),
                "n_nodes": int(view.n_nodes[k]),
                "n_labelled": int(view.n_labelled[k]),
                "prevalence": float(view.prevalence[k, -1]),
                "error": f"{100 * error[k]:.1f}",
            }
            for k in chosen.tolist()
        ],
    }
    return facts.render(TEMPLATE, fit=fit)


TEMPLATE = """\
{% if fit.judged %}
<p>{% if fit.flagged %}In {{ fit.flagged | count }} of {{ fit.judged | count }} communities{% else %}In none of {{ fit.judged | count }} communities{% endif %} the expected error of a share is above {{ fit.threshold }} points
(<code>fit.error</code>).{% if fit.flagged %} Read their intervals, not their estimates alone. To make them better, label some of their members (twenty to
fifty, drawn at random) and run again.{% endif %}</p>
{% if fit.rows %}
<div class="scroll">
<table>
<caption>{% if fit.rows | length < fit.flagged %}The {{ fit.rows | length }} with the largest expected error; all have <code>flagged</code> in <code>prevalence.parquet</code>.{% else %}Communities whose expected error is large, the largest first.{% endif %}</caption>
<thead><tr><th scope="col">community</th><th scope="col" class="n">members</th><th scope="col" class="n">labelled</th><th scope="col" class="n">{{ last }}</th><th scope="col" class="n">expected error</th></tr></thead>
<tbody>
{% for row in fit.rows %}
<tr><th scope="row">{{ row.name }}</th><td class="n">{{ row.n_nodes | count }}</td><td class="n">{{ row.n_labelled | count }}</td><td class="n">{{ row.prevalence | share }}</td><td class="n">{{ row.error }}</td></tr>
{% endfor %}
</tbody>
</table>
</div>
{% endif %}
{% else %}
<p>No community has an interval, so no error can be expected of any: set <code>intervals.resamples = 100</code>.</p>
{% endif %}
{% if fit.checked %}
<p>{% if fit.disagree %}In {{ fit.disagree | count }}{% else %}In none{% endif %} of {{ fit.checked | count }} communities with labelled members, labels and posteriors disagree (p below {{ settings.fit.alpha }}).
{% if fit.more %}Chance gives about {{ fit.expected | count }}: posteriors are off in some of them in a way that this graph's groups do not usually show. Look at
those with the smallest <code>fit_pvalue</code> first, and label more of their members.{% else %}That is no more than chance gives: no reason for doubt.{% endif %}</p>
{% endif %}
<p class="muted">How it works: the expected error follows from the standard error, which includes every known source of error. The p-value tests
whether the labelled members' classes could come from posteriors that have not seen their labels, shifted by as much as groups of this graph
usually are.</p>
"""
