"""Which nodes of a finished run to label next, as a probability sample with weights.

The nodes of a stratum are in the same target communities. `auto` predicts the sum over
a community's unlabelled members with the variance ``M + M^2 v``, where M sums their
``f (1 - f)`` and v is the variance of a shift that they share. Labels of x_h of the N_h
nodes of a stratum h of weight w_h, drawn at random, leave

    M = sum_h (N_h - x_h) w_h,      v = within + rest / (1 + rest sum_h x_h w_h)

where ``within``, the variance inside a group of the graph, is not reduced by labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from scipy.sparse import csr_array

from xnq_dist.core.arrays import Floats, Ints
from xnq_dist.core.errors import SettingsError
from xnq_dist.core.schemas import conform
from xnq_dist.quantify.batches import community_ids
from xnq_dist.quantify.default.auto import Auto
from xnq_dist.quantify.default.estimator_fit import Learnt, left_open
from xnq_dist.quantify.interface import Communities, Labelled, NodeTable, combine
from xnq_dist.quantify.quality import z_value
from xnq_dist.selection.scored_rows import normalised
from xnq_dist.steps.contrast import Finished

__all__ = ["LabelPlan", "plan_labels", "plan_writer"]

POWER = 8.0
"""Order of the norm of the half-widths that is minimised: close to their maximum."""
SPREAD = 0.2
"""Part of the labels that is allocated in proportion to strata sizes, so that every
node may be chosen and no weight exceeds 5 times that of a simple random sample."""
STEPS = 500
BANDS = 12
"""Bands of nodes by their contribution to the variance; within one, except the last, it
varies by a factor of 4."""


@dataclass(frozen=True, eq=False)
class LabelPlan:
    """Nodes to label, and the predicted intervals."""

    table: pa.Table
    """Schema ``label_plan``; nodes that were labelled before have the weight 1."""
    communities: list[dict[str, Any]]
    """Of each ``community``, the widest first: expected number of new ``labels``; the
    half-width of its widest class's ``published`` interval, and those predicted
    ``now``, with the ``planned`` labels and with as many ``random`` ones, all for
    labels that are declared a sample (`labels.drawn`)."""
    unlabelled: int
    """Nodes that could be chosen."""


def plan_labels(
    location: str,
    budget: int,
    communities: list[str] | None = None,
    worst: int = 20,
    seed: int = 0,
) -> LabelPlan:
    """Choose the nodes to label next.

    Parameters
    ----------
    location
        The run directory; its memberships table must be unchanged.
    budget
        Number of nodes to label.
    communities
        Names of the communities whose intervals are to be narrowed, as text; None:
        those with the widest intervals, `worst` of them.
    seed
        Seed of the draw: the same seed gives the same nodes.

    Raises
    ------
    SettingsError
        When a number is out of range, a community is unknown, no community has an
        interval to narrow, or the run was not made with `auto`.
    InputError, StageError
        When the memberships changed since the run; when the run is not complete.
    """
    if budget < 1 or worst < 1:
        raise SettingsError("--budget and --worst must be 1 or more")
    run = Finished(location)
    widths = (run.view.upper - run.view.lower).max(axis=1) / 2
    places = _targets(run, communities, worst, widths)
    sets = run.members(places)
    strata = Strata(run.nodes, run.learnt, sets, run.settings.labelled, run.parts)
    unlabelled = int(strata.sizes.sum())
    budget = min(budget, unlabelled)
    labels = allocate(strata, budget)
    chances = np.clip(labels / strata.sizes, 1e-12, 1.0)
    picked = choose(strata.stratum, chances, budget, seed)
    now, planned, random = (
        z_value(run.settings.intervals.level) * strata.errors(each).max(axis=1)
        for each in (np.zeros(len(labels)), labels, budget * strata.shares)
    )
    order, inside = np.argsort(-now, kind="stable"), strata.inside
    # The nodes of a stratum are in the same communities.
    widest = pa.array(order[inside[order].argmax(axis=0)], mask=inside.sum(axis=0) == 0)
    stratum, names = strata.stratum[picked], run.view.names.take(places)
    table = pa.table(
        {
            "node_id": community_ids(run.ids.values.take(picked)),
            "community": names.take(widest.take(stratum)),
            "stratum": stratum,
            "inclusion_probability": chances[stratum],
            "label_weight": 1.0 / chances[stratum],
        }
    )
    predicted = pa.table(
        {
            "community": names.cast(pa.string()),
            "labels": inside @ labels,
            "published": widths[places],
            "now": now,
            "planned": planned,
            "random": random,
        }
    )
    rows = predicted.take(order).to_pylist()
    return LabelPlan(conform(table, "label_plan", "plan"), rows, unlabelled)


def plan_writer(path: str) -> Callable[[LabelPlan], None]:
    """A function that writes the table of a plan as Parquet or CSV, by the suffix.

    Raises
    ------
    SettingsError
        For another suffix; by the function, if the path cannot be written.
    """
    formats = {".csv": pacsv.write_csv, ".parquet": pq.write_table}
    if Path(path).suffix not in formats:
        raise SettingsError(
            f"--out {path} ends neither in .parquet nor in .csv: use one of both"
        )

    def write(plan: LabelPlan) -> None:
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            formats[Path(path).suffix](plan.table, path)
        except OSError as error:
            raise SettingsError(
                f"--out {path} cannot be written ({error}): name another file"
            ) from error

    return write


def _targets(
    run: Finished, named: list[str] | None, worst: int, widths: Floats
) -> Ints:
    """Places of the named communities, or of those with the widest intervals."""
    places = [run.place(name) for name in named or ()]
    chosen = np.unique(places) if named else np.argsort(-widths, kind="stable")[:worst]
    narrow = widths[chosen] > 0
    if not (narrow.all() if named else narrow.any()):
        names = run.view.names.take(chosen[~narrow]).to_pylist()
        raise SettingsError(
            f"no interval to narrow: {', '.join(map(repr, names))} of "
            f"{run.directory.uri}, suppressed or with labelled members alone: name "
            "other communities, or lower disclosure.min_size"
        )
    return np.asarray(chosen[narrow])


class Strata:
    """H strata of unlabelled nodes, and S target communities that consist of them.

    Parameters
    ----------
    communities
        Members of the target communities.
    parts
        As for `Auto`.
    """

    def __init__(
        self,
        nodes: NodeTable,
        learnt: Learnt,
        communities: list[Ints],
        labelled: Labelled = "count",
        parts: Floats | None = None,
    ) -> None:
        codes, free = nodes.class_codes, nodes.unlabelled
        f = normalised(nodes.posteriors[free], nodes.prior)
        most = (f * (1 - f)).max(axis=1)
        ends = most.max(initial=1e-300) / 4.0 ** np.arange(1, BANDS)
        key = _cells(communities, len(free))[free] * BANDS + np.digitize(most, ends)
        of_free = np.unique(key, return_inverse=True)[1]
        self.sizes = np.bincount(of_free).astype(np.float64)
        """Number of nodes of each stratum, N_h, shape (H,)."""
        self.shares: Floats = self.sizes / max(self.sizes.sum(), 1.0)
        """Part of the nodes, and of a simple random sample, in each stratum, (H,)."""
        self.stratum = np.full(len(free), -1, np.int64)
        """Stratum of every node, -1 where it is labelled, shape (N,)."""
        self.stratum[free] = of_free
        batch = Communities.of(communities)
        inner = batch.only(free)
        cells = inner.community, self.stratum[inner.members]
        shape = len(communities), len(self.sizes)
        self.inside: Any = csr_array((np.ones(len(inner.members)), cells), shape)
        """1 where a stratum is in a community, else 0, shape (S, H)."""
        self.inside.sum_duplicates()
        self.inside.data[:] = 1.0
        f = np.clip(f[:, codes], learnt.least, 1 - learnt.least)
        weights = [np.bincount(of_free, w) for w in (f * (1 - f)).T]
        self.weights = np.stack(weights, axis=1) / self.sizes[:, None]
        """Mean of f (1 - f) of each stratum, shape (H, K)."""
        found = Auto(learnt=learnt, parts=parts).in_scenario(None, batch, nodes)
        made = combine(batch, nodes, found, labelled)
        number = made.n_nodes if labelled == "count" else made.n_estimated
        now = np.nan_to_num(made.sd[:, codes]) ** 2
        mass = np.maximum(self.inside @ (self.sizes[:, None] * self.weights), 1e-300)
        shift = np.maximum(now * number[:, None] ** 2 - mass, 0.0) / mass**2
        self.within = np.minimum(shift, learnt.within)
        self.rest = shift - self.within
        """Variances of the shift: what labels leave, and what they reduce, (S, K)."""
        self.scales = now / (mass + mass**2 * shift)
        """Factors from the variances of sums to those of shares, shape (S, K)."""

    def errors(self, labels: Floats) -> Floats:
        """Predict standard errors from the new labels per stratum, shape (S, K)."""
        return np.sqrt(self._variances(labels)[0])

    def gains(self, labels: Floats) -> Floats:
        """How much a label in each stratum reduces the norm, up to a factor, (H,)."""
        variances, falls = self._variances(labels)
        falls *= variances ** (POWER / 2 - 1)
        return np.asarray((self.inside.T @ falls * self.weights).sum(axis=1))

    def _variances(self, labels: Floats) -> tuple[Floats, Floats]:
        """Variances of the shares, and their falls by w_h x_h, both (S, K)."""
        new = self.inside @ (labels[:, None] * self.weights)
        mass = self.inside @ ((self.sizes - labels)[:, None] * self.weights)
        rest = left_open(self.rest, new)
        shift = self.within + rest
        fall = 1 + 2 * mass * shift + (mass * rest) ** 2
        return self.scales * (mass + mass**2 * shift), self.scales * fall


def _cells(sets: list[Ints], n_nodes: int) -> Ints:
    """A code for each combination of sets that has nodes, 0 for none, shape (N,)."""
    cell = np.zeros(n_nodes, np.int64)
    codes = 1
    for members in sets:
        old, within = np.unique(cell[members], return_inverse=True)
        cell[members] = codes + within
        codes += len(old)
    return cell


def allocate(strata: Strata, budget: int) -> Floats:
    """Allocate labels to the strata, not rounded, shape (H,).

    A part of the labels (`SPREAD`) is allocated in proportion to sizes; the others go,
    a few at a time, to the stratum where a label reduces the norm most.
    """
    labels = SPREAD * budget * strata.shares
    left = budget - float(labels.sum())
    chunk = left / min(budget, STEPS)
    while left > 1e-9:
        capacity = strata.sizes - labels
        gains = np.where(capacity > 1e-12, strata.gains(labels), -1.0)
        at = int(np.argmax(gains))
        part = min(chunk, left, float(capacity[at]))
        labels[at] += part
        left -= part
    return labels


def choose(stratum: Ints, chances: Floats, budget: int, seed: int) -> Ints:
    """Draw the nodes to label, each with the probability of its stratum, ascending.

    Systematic sampling through the strata: exactly `budget` nodes, and from each
    stratum its expected number, rounded up or down. Nodes of the stratum -1 are not
    drawn; the probabilities `chances` of all nodes add up to the budget.
    """
    rng = np.random.Generator(np.random.Philox(seed))
    free = np.flatnonzero(stratum >= 0)
    order = free[np.lexsort((rng.random(len(free)), stratum[free]))]
    ends = np.cumsum(chances[stratum[order]])
    points = (rng.random() + np.arange(budget)) * (ends[-1] / budget)
    # Rounding errors of the sum must not drop the last node.
    places = np.minimum(np.searchsorted(ends, points, side="right"), len(order) - 1)
    return np.sort(order[places])
