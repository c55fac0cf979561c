"""Section on large expected errors and on labels that disagree with posteriors."""

from __future__ import annotations

import numpy as np
from scipy.special import bdtrc

from xnq_dist.quantify.checks.fit_check import expected_errors
from xnq_dist.report.page_facts import PageFacts
from xnq_dist.report.wording import difference

__all__ = ["body"]


def body(facts: PageFacts) -> str:
    """Communities with large expected errors, and a test of labels against posteriors.

    More communities disagree than by chance if the number has a probability below 1 %
    under uniform p-values.
    """
    view, settings = facts.view, facts.settings
    error = expected_errors(view.se) if view.classes else np.empty(0)
    pvalue, alpha = view.fit_pvalue, settings.fit.alpha
    checked = int(np.count_nonzero(~np.isnan(pvalue)))
    disagree = int(np.count_nonzero(pvalue < alpha))
    fit = {
        "judged": int(np.count_nonzero(~np.isnan(error))),
        "flagged": int(np.count_nonzero(view.flagged)),
        "threshold": f"{100 * settings.fit.error:g}",
        "checked": checked,
        "disagree": disagree,
        "expected": round(alpha * checked),
        "more": disagree > 0 and bdtrc(disagree - 1, checked, alpha) < 0.01,
    }
    held = facts.of("quantify").get("own_coverage")
    skill = facts.of("readout").get("skill")
    if skill:
        skill = {**skill, "ends": difference(skill["lower"], skill["upper"])}
    return facts.render("fit", fit=fit, held=held, skill=skill, level=facts.level)
