"""Section on large expected errors and on labels that disagree with posteriors."""

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
    """Communities with large expected errors, and a test of labels against posteriors.

    More communities disagree than by chance if the number has a probability below 1 %
    under uniform p-values.
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
<p>The expected error of a share is above {{ fit.threshold }} points (<code>fit.error</code>) in {% if fit.flagged %}{{ fit.flagged | count }}{% else %}none{% endif %} of {{ fit.judged | count }} communities.
{% if fit.flagged %} Use their intervals, not only their estimates. To improve them, label twenty to fifty of their members, drawn at random, and run
again.{% endif %}</p>
{% if fit.rows %}
<div class="scroll">
<table>
<caption>{% if fit.rows | length < fit.flagged %}The {{ fit.rows | length }} with the largest expected error; the column <code>flagged</code> of <code>prevalence.parquet</code> marks all of them.{% else %}Communities whose expected error is large, the largest first.{% endif %}</caption>
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
<p>No community has an interval, so expected errors are unknown: set <code>intervals.resamples = 100</code>.</p>
{% endif %}
{% if fit.checked %}
<p>Labels and posteriors disagree in {% if fit.disagree %}{{ fit.disagree | count }}{% else %}none{% endif %} of {{ fit.checked | count }} communities with labelled members (p below {{ settings.fit.alpha }}).
{% if fit.more %}By chance, about {{ fit.expected | count }} would: in some of these communities the posteriors are more biased than is usual for groups of this graph. Start with
the smallest <code>fit_pvalue</code>, and label more of their members.{% else %}That is no more than expected by chance.{% endif %}</p>
{% endif %}
<p class="muted">The expected error is computed from the standard error, which includes every known source of error. The p-value tests
whether the labelled members' classes agree with posteriors computed without their labels, allowing for the bias that groups of this graph
usually have.</p>
"""
