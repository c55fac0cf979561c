"""What the page shows beyond the ranking: anomalies, changes, the fit check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc

from xnq_dist.core.config import Settings
from xnq_dist.quantify.checks.anomalies import Anomalies
from xnq_dist.quantify.checks.fit_check import expected_errors
from xnq_dist.report.changed import Changed
from xnq_dist.report.compared import ordered
from xnq_dist.report.view import PrevalenceView
from xnq_dist.report.wording import difference, points, probability

__all__ = ["anomalous", "changes_section", "fit_section", "ranked_by_effect"]

SHOWN = 15
"""Communities that a section's table names."""
NAMED = 12
"""New and gone communities named in a sentence."""


def anomalous(
    view: PrevalenceView, found: Anomalies, settings: Settings
) -> dict[str, Any]:
    """How many communities differ in the last class, and the largest differences."""
    effect, qvalue = found.effect[:, -1], found.qvalue[:, -1]
    differ = qvalue <= settings.anomalies.rate
    chosen = _largest(effect, differ, view.n_nodes)[:SHOWN]
    return {
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


def ranked_by_effect(view: PrevalenceView, found: Anomalies) -> NDArray[np.int64]:
    """Communities by the size of the last class's effect, the largest first."""
    return ordered(np.abs(found.effect[:, -1]), view.n_nodes)


def changes_section(
    view: PrevalenceView, found: Changed, settings: Settings
) -> dict[str, Any]:
    """What changed in the last class since the earlier results."""
    changes, earlier = found.changes, found.earlier
    effect, qvalue = changes.effect[:, -1], changes.qvalue[:, -1]
    moved = qvalue <= settings.anomalies.rate
    chosen = _largest(effect, moved, view.n_nodes)[:SHOWN]
    new, gone = found.new, found.gone
    seed = found.seed
    return {
        "where": earlier.where,
        "created": earlier.created,
        "count": int(moved.sum()),
        "up": int(np.count_nonzero(moved & (effect > 0))),
        "both": int(np.count_nonzero(found.place >= 0)),
        "compared": int(found.compared.sum()),
        "new": len(new),
        "new_names": _named(view, _by_size(new, view)),
        "gone": len(gone),
        "gone_names": _named(earlier.view, _by_size(gone, earlier.view)),
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
                "n_before": int(earlier.view.n_nodes[found.place[k]]),
                "before": float(found.before[0][k, -1]),
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


def fit_section(view: PrevalenceView, settings: Settings) -> dict[str, Any]:
    """Whose expected error is large, and whether more labels disagree than by chance.

    More than by chance: the count has a probability below 1 % where all p-values are
    uniform.
    """
    error = expected_errors(view.se) if view.classes else np.empty(0)
    flagged = np.flatnonzero(view.flagged)
    chosen = flagged[ordered(error[flagged], view.n_nodes[flagged])][:SHOWN]
    pvalue, alpha = view.fit_pvalue, settings.fit.alpha
    checked = int(np.count_nonzero(~np.isnan(pvalue)))
    disagree = int(np.count_nonzero(pvalue < alpha))
    return {
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


def _largest(
    effect: NDArray[np.float64], chosen: NDArray[np.bool_], sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Of the chosen, places by the size of the effect, the largest first."""
    some = np.flatnonzero(chosen)
    return np.asarray(some[ordered(np.abs(effect[some]), sizes[some])])


def _by_size(some: NDArray[np.int64], view: PrevalenceView) -> NDArray[np.int64]:
    return np.asarray(some[np.lexsort((some, -view.n_nodes[some]))])


def _named(view: PrevalenceView, some: NDArray[np.int64]) -> Sequence[str]:
    return [view.name(k) for k in some[:NAMED].tolist()]
