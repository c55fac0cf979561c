"""Communities whose prevalence differs from an earlier run's beyond chance.

Two runs of nearly the same tables share most of their errors: those of the same labels
and features cancel in the difference. What is left is what another seed or a changed
edge does to the posteriors, and the error about members and labels that only one of the
runs has. The first part is measured each time: three in four communities have hardly
changed, so the 75 % quantile of all differences, in units of the errors that the runs
claim, is its size. This noise has heavier tails than the normal distribution, because
few communities have many nodes of uncertain class: it is taken as Student's.

References
----------
G. Y. Zou, A. Donner, "Construction of confidence limits about effect measures: a
general approach", Statistics in Medicine 27(10), 2008 (limits of a difference from the
limits of its parts).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.special import bdtr, erfc, ndtri, stdtr, stdtrit

from xnq_dist.core.arrays import Floats, Ints
from xnq_dist.core.schemas import class_column
from xnq_dist.core.settings import Settings
from xnq_dist.steps.anomalies import qvalues
from xnq_dist.steps.results import Run
from xnq_dist.steps.view import PrevalenceView, by_effect, nulls_for_nan

__all__ = ["Changed", "Changes", "changes_table", "compare", "find_changes"]

MIN_NOISE = 0.12
"""Smallest noise between two runs, as a share of the errors that they claim."""
TAILS = 5
"""Degrees of freedom of the noise's Student distribution."""
BULK, SURE = 0.75, 0.95
"""Quantile of the differences that measures the noise, and confidence of its limit."""


class Changes(NamedTuple):
    """Difference of each community from an earlier run, shape (S, C) each."""

    effect: Floats
    """Prevalence now minus then; NaN without both."""
    lower: Floats
    """Ends of the effect's interval; NaN where nothing is compared."""
    upper: Floats
    pvalue: Floats
    """Two-sided, of no change."""
    qvalue: Floats
    """Smallest false discovery rate at which the change is flagged."""


@dataclass(frozen=True, eq=False)
class Changed:
    """A run's communities joined with those of earlier results, and compared."""

    then: PrevalenceView
    """The earlier results."""
    place: Ints
    """Row of each community in the earlier view, -1 for new communities, shape (K,)."""
    gone: Ints
    """Rows in the earlier view of communities that this run does not have."""
    before: Floats
    """Earlier prevalence, NaN where it is not shown, shape (K, C)."""
    changes: Changes


def compare(now: PrevalenceView, earlier: Run, settings: Settings) -> Changed:
    """Join two runs by community name and compare the communities that both have.

    Parameters
    ----------
    now, settings
        Prevalence table and settings of this run.
    earlier
        Earlier results for which `earlier.why_not` returns an empty text.
    """
    then = earlier.view
    names, others = now.names, then.names
    if names.type != others.type:  # a number and its text are the same name
        names, others = names.cast(pa.string()), others.cast(pa.string())
    place = pc.fill_null(pc.index_in(names, value_set=others), -1).to_numpy()
    gone = pc.is_null(pc.index_in(others, value_set=names)).to_numpy(False)
    # Earlier values of communities that are suppressed now are not compared.
    before = _aligned(then, now, np.where(now.suppressed, -1, place))
    changes = find_changes(now, before, settings.intervals.level, earlier.level)
    place = place.astype(np.int64)
    return Changed(then, place, np.flatnonzero(gone), before.prevalence, changes)


def _aligned(
    then: PrevalenceView, now: PrevalenceView, place: NDArray[Any]
) -> PrevalenceView:
    """Earlier values in the rows and columns of this run; `place` -1: no values."""
    columns = [then.classes.index(name) for name in now.classes]

    def joined(name: str, empty: float) -> NDArray[Any]:
        values = getattr(then, name)
        last = np.full((1, *values.shape[1:]), empty, values.dtype)
        rows = np.concatenate([values, last])[place]
        return np.asarray(rows[:, columns] if rows.ndim == 2 else rows)

    empty = dict.fromkeys(("prevalence", "lower", "upper", "se"), np.nan)
    empty |= dict.fromkeys(("n_nodes", "n_labelled", "n_estimated"), 0)
    values: dict[str, Any] = {name: joined(name, each) for name, each in empty.items()}
    return replace(now, **values)


def changes_table(now: PrevalenceView, changed: Changed, rate: float) -> pa.Table:
    """Rows of the table ``changes``.

    The largest effects come first, then communities that could not be compared, new
    communities, and last those that are gone.
    """
    then, changes, new = changed.then, changed.changes, changed.place < 0
    size, q = np.append(then.n_nodes, 0)[changed.place], changes.qvalue
    columns = {
        "status": pa.array(np.where(new, "new", "both").tolist(), pa.string()),
        "n_nodes_before": pa.array(size, mask=new),
        "before": changed.before,
        "lower": changes.lower,
        "upper": changes.upper,
        "pvalue": changes.pvalue,
        "qvalue": q,
        "changed": np.ma.array(q <= rate, mask=np.isnan(q)),
    }
    rows = by_effect(now, changes.effect, columns, last=new)
    gone = changed.gone
    columns_then = [then.classes.index(name) for name in now.classes]
    places = np.repeat(gone, len(now.classes))
    others = pa.table(
        {
            "community": then.texts(places),
            "class": class_column(now.labels, len(gone)),
            "status": pa.repeat("gone", len(places)),
            "n_nodes_before": then.n_nodes[places],
            "before": nulls_for_nan(then.prevalence[gone][:, columns_then].ravel()),
        }
    )
    tables = [rows, others]
    if rows.schema.field("community").type != others.schema.field("community").type:
        tables = [
            each.set_column(0, "community", each["community"].cast(pa.string()))
            for each in tables
        ]
    return pa.concat_tables(tables, promote_options="default")


def find_changes(
    now: PrevalenceView,
    then: PrevalenceView,
    level: float,
    level_then: float,
) -> Changes:
    """Compare every community with itself in an earlier run.

    Parameters
    ----------
    now, then
        Estimates, standard errors and members of the same S communities and C classes
        in the same order, NaN where there is none.
    level
        Confidence level, inside (0, 1), of the intervals and of the effect's interval.
    level_then
        Confidence level of the earlier run's intervals.

    Notes
    -----
    The null hypothesis is that the share among the community's actual members has not
    changed: members that joined or left are a change like any other, and between fully
    labelled communities every difference is a change. Independent errors have the sum
    of both estimates' variances, each from the half of its interval on the side of the
    other estimate, as if it were normal, or from its standard error where that is
    larger, because ends that are rounded to counts can equal the estimate.

    The variance is ``(r^2 + (1 - r^2) f)`` times that. f is the share of the estimated
    members that only one run estimates, at least: the difference of members, or of
    labels, over the smaller number. r is the noise: an upper limit of the quantile
    `BULK` of all differences, in units of independent standard errors and of that
    quantile of Student's distribution, which then stands in for the normal one, at
    least `MIN_NOISE` and at most 1. Where independent normal errors give a smaller
    p-value or a narrower interval, these hold: they allow for more than noise.

    Of two classes the second is compared and the first mirrors it. Q-values control the
    false discovery rate over all communities and classes; where nothing has changed,
    that is the probability of any flag in the comparison.
    """
    effect = now.prevalence - then.prevalence
    low, high = _errors(now, level)
    low_then, high_then = _errors(then, level_then)
    # Standard errors of the effect, below and above it.
    down, up = np.hypot(low, high_then), np.hypot(high, low_then)
    nearer = np.where(effect > 0, down, up)
    limit = _noise(effect, nearer)
    shares = limit**2 + (1 - limit**2) * _fresh(now, then)[:, None]
    # Where both are known exactly, any difference is a change.
    error = np.maximum(nearer, 1e-12)
    known = ~np.isnan(down + up)
    pvalue = np.where(known, erfc(np.abs(effect) / error / np.sqrt(2)), np.nan)
    student = 2 * stdtr(TAILS, -np.abs(effect) / (np.sqrt(shares) * error))
    pvalue = np.minimum(pvalue, student)
    wide = float(stdtrit(TAILS, (1 + level) / 2))
    z = np.minimum(float(ndtri((1 + level) / 2)), wide * np.sqrt(shares))
    lower, upper = effect - z * down, effect + z * up
    return Changes(effect, lower, upper, pvalue, qvalues(pvalue))


def _errors(view: PrevalenceView, level: float) -> tuple[Floats, Floats]:
    """Standard errors below and above the estimates, shape (S, C) each."""
    p, lower, upper = view.estimates()
    z = float(ndtri((1 + level) / 2))
    return np.fmax((p - lower) / z, view.se), np.fmax((upper - p) / z, view.se)


def _fresh(now: PrevalenceView, then: PrevalenceView) -> Floats:
    """Share of the estimated members that only one run estimates, at least, (S,)."""
    moved = np.maximum(
        np.abs(now.n_nodes - then.n_nodes), np.abs(now.n_labelled - then.n_labelled)
    )
    both = np.maximum(np.minimum(now.n_estimated, then.n_estimated), 1)
    return np.asarray(np.minimum(moved / both, 1.0))


def _noise(effect: Floats, error: Floats) -> float:
    """An upper limit of the size of the differences, in units of independent errors.

    It is from the quantile `BULK`, and 1 with fewer differences than it needs (11).
    """
    first = 1 if effect.shape[1] == 2 else 0
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = (np.abs(effect) / error)[:, first:]
    sizes = np.sort(sizes[np.isfinite(sizes)])
    number = len(sizes)
    # Places that are above the quantile with the probability SURE.
    above = np.flatnonzero(bdtr(np.arange(number), number, BULK) >= SURE)
    if not len(above):
        return 1.0
    limit = float(sizes[above[0]] / stdtrit(TAILS, (1 + BULK) / 2))
    return min(max(limit, MIN_NOISE), 1.0)
