"""Estimators on communities of a real graph: errors by kind, size and labels inside.

The literature draws samples so that only the proportions of classes shift. Here the
sets are a graph's own, whose features and links shift along, and such samples from the
same posteriors. The truth is that of the unlabelled members, and nothing is chosen by
it. What is kept of a case suffices for means, intervals and tests over draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.config import Settings
from xnq_dist.evaluation.case import Case
from xnq_dist.evaluation.estimators import Answer, Estimators
from xnq_dist.evaluation.measures import absolute_error, relative_absolute_error
from xnq_dist.evaluation.regions import SAMPLES, class_counts_in
from xnq_dist.quantify.checks.fit_check import expected_errors, standard_errors
from xnq_dist.quantify.interface import Communities, Estimates

__all__ = ["LEAST_UNLABELLED", "SIZES", "Row", "score_case"]

LEAST_UNLABELLED = 5
"""Unlabelled members of a set that is scored."""
SIZES = ((5, 20), (20, 50), (50, 100), (100, 500), (500, 2**62))
"""Classes of size, by unlabelled members."""


@dataclass(frozen=True)
class Row:
    """Mean figures of one estimator on the sets of one kind, size and labelling."""

    communities: str
    estimator: str
    sizes: str
    """Least and most unlabelled members."""
    labelled: bool
    """Whether the sets have labelled members."""
    sets: int
    ae: float
    rae: float
    bias: float
    """Of the last class."""
    coverage: float | None
    """None: the estimator has no intervals."""
    width: float | None
    flagged: int | None = None
    """Sets whose expected error is large; None: the estimator has no intervals."""
    flagged_ae: float | None = None
    """Their error; None where there is none."""


def score_case(
    case: Case, kinds: Mapping[str, Communities], estimators: Estimators
) -> Iterator[Row]:
    """Every estimator on every kind of communities (sets by the name of their kind)."""
    for kind, sets in kinds.items():
        counts, labelled = _truth(case, sets)
        sizes = counts.sum(axis=1)
        scored = sizes >= LEAST_UNLABELLED
        if not scored.any():
            continue
        true = counts[scored] / sizes[scored, None]
        for name, answer in estimators.answers(sets, kind in SAMPLES):
            yield from _rows(
                kind,
                name,
                answer,
                true,
                sizes[scored],
                labelled[scored],
                scored,
                estimators.settings,
            )


def _truth(
    case: Case, sets: Communities
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Classes of the unlabelled members, (S, C); number of labelled ones, (S,)."""
    n_classes = len(case.nodes.classes)
    free = np.where(case.nodes.labels < 0, case.truth, -1)
    counts = class_counts_in(sets, free, n_classes).astype(np.float64)
    return counts, class_counts_in(sets, case.nodes.labels, n_classes).sum(axis=1)


def _rows(
    kind: str,
    name: str,
    answer: Answer,
    true: NDArray[np.float64],
    sizes: NDArray[np.float64],
    labelled: NDArray[np.int64],
    scored: NDArray[np.bool_],
    settings: Settings,
) -> Iterator[Row]:
    estimate = answer.prevalence if isinstance(answer, Estimates) else answer
    estimate = estimate[scored]
    values = {
        "ae": absolute_error(true, estimate),
        "rae": relative_absolute_error(true, estimate, sizes.astype(np.int64)),
        "bias": estimate[:, -1] - true[:, -1],
    }
    ends = (answer.lower, answer.upper) if isinstance(answer, Estimates) else ()
    flagged = None
    if len(ends) == 2 and ends[0] is not None and ends[1] is not None:
        lower, upper = ends[0][scored], ends[1][scored]
        held = (true >= lower - 1e-9) & (true <= upper + 1e-9)
        values["coverage"] = held.mean(axis=1)
        values["width"] = (upper - lower).mean(axis=1)
        sd = answer.sd if isinstance(answer, Estimates) else None
        sd = None if sd is None else sd[scored]
        error = standard_errors(sd, lower, upper, settings.intervals.level)
        flagged = expected_errors(error) > settings.fit.error
    for low, high in SIZES:
        for inside in (False, True):
            some = (sizes >= low) & (sizes < high) & ((labelled > 0) == inside)
            if some.any():
                means = {key: float(each[some].mean()) for key, each in values.items()}
                yield Row(
                    kind,
                    name,
                    f"{low}-{high}" if high < 2**62 else f"{low}-",
                    inside,
                    int(np.count_nonzero(some)),
                    means["ae"],
                    means["rae"],
                    means["bias"],
                    means.get("coverage"),
                    means.get("width"),
                    None if flagged is None else int(flagged[some].sum()),
                    None
                    if flagged is None or not flagged[some].any()
                    else float(values["ae"][some & flagged].mean()),
                )
