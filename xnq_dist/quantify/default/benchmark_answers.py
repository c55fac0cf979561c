"""Answers raked to benchmarks, and what the benchmarks leave of their variance.

Raking moves the estimate of a community S by ``b (T - estimates of the groups)`` to
first order, with ``b = H_SB inverse(H_BB)`` and ``H_SB`` the sum of u f' (1 - f') over
the nodes that S and the groups B share. With the covariance of `auto`,

    Var = V_SS - 2 b V_BS + b (V_BB + E) b',

E the squared standard errors of the benchmarks: nothing is left of a group of its own.
Each class is taken against the rest, as in `auto`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array
from scipy.special import ndtri

from xnq_dist.core.arrays import Floats, Floats32, Ints
from xnq_dist.core.blocks import one_blas_thread
from xnq_dist.quantify.default.auto import estimates_of, over_scenarios, scenario_sums
from xnq_dist.quantify.default.benchmarks import Targets
from xnq_dist.quantify.default.estimator_fit import Learnt
from xnq_dist.quantify.default.node_sums import class_codes, node_sums
from xnq_dist.quantify.default.raking import Cells, pseudo_inverse, rake
from xnq_dist.quantify.default.scenarios import Tilt
from xnq_dist.quantify.interface import (
    CellTilt,
    Communities,
    Estimates,
    GroupSums,
    NodeTable,
    Prevalence,
    Reference,
)

__all__ = ["Benchmarked"]


MET = 1e-9
"""Deviation from a benchmark that is accepted, as part of its group's size."""
BLOCK = 1 << 22
"""Communities times benchmarks whose covariances are held at once."""
ARRAYS = ("weights", "squares", "codes", "shares", "se", "sizes")
"""Fields that `Benchmarked.arrays` takes over."""


@dataclass(frozen=True, eq=False)
class Benchmarked:
    """Posteriors raked to G benchmarked groups, and what intervals follow from."""

    tilt: CellTilt
    incidence: csr_array[Any]
    """1 where the nodes of a cell are in a group, shape (cells, G)."""
    weights: Floats
    """Sum of u f' (1 - f') over the unlabelled nodes of each cell, shape (cells, K)."""
    squares: Floats
    """Sum of u^2 f' (1 - f'), shape (cells, K)."""
    sums: GroupSums
    """The groups' sums by group of the graph's own partitions."""
    codes: Ints
    """The groups' communities, -1: all nodes, shape (G,)."""
    shares: Floats
    """What is known of the groups, NaN: nothing, shape (G, C)."""
    se: Floats
    """Its standard error, shape (G, C)."""
    sizes: Floats
    """What prevalence of the groups is of, shape (G,)."""

    @classmethod
    def of(
        cls, nodes: NodeTable, reference: Reference, learnt: Learnt, targets: Targets
    ) -> Benchmarked:
        """Rake the posteriors; benchmarks that cannot hold together: `InputError`."""
        cells = Cells.of(targets.members, len(nodes.labels))
        prior = reference.prior
        factors, left = rake(nodes, prior, cells, targets.sums, targets.sizes)
        missed = np.nanmax(np.abs(np.where(np.isnan(targets.sums), 0, left)), axis=1)
        if missed.max() > MET:
            worst = np.argsort(-missed, kind="stable")[:2].tolist()
            raise targets.contradicts(min(worst), max(worst), len(worst) > 1)
        tilt = CellTilt(cells.cell, factors)
        moved = replace(nodes, tilt=tilt)
        number, width = len(factors), len(class_codes(len(prior)))
        whole = _by_cell(None, moved, prior, tilt, learnt.least)
        weights, squares = np.zeros((2, number + 1, width))
        weights[whole.groups] = whole.weights
        squares[whole.groups] = (
            whole.weights if whole.squares is None else whole.squares
        )
        groups = learnt.groups, learnt.variances, learnt.labelled
        sums = node_sums(targets.members, moved, prior, *groups, learnt.least).groups
        return cls(
            tilt,
            cells.incidence,
            weights[:-1],
            squares[:-1],
            sums,
            targets.codes,
            targets.shares,
            targets.se,
            targets.sizes,
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """For an npz file."""
        rows, columns = self.incidence.nonzero()
        return {
            **{name: getattr(self, name) for name in ARRAYS},
            "cell": self.tilt.cell,
            "factors": self.tilt.factors,
            "rows": rows,
            "columns": columns,
            "offsets": self.sums.offsets,
            "groups": self.sums.groups,
            "group_weights": self.sums.weights,
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Benchmarked:
        """From what `arrays` gives."""
        shape = (len(arrays["factors"]), len(arrays["codes"]))
        at = (arrays["rows"], arrays["columns"])
        return cls(
            tilt=CellTilt(arrays["cell"], arrays["factors"]),
            incidence=csr_array((np.ones(len(at[0])), at), shape=shape),
            sums=GroupSums(
                arrays["offsets"], arrays["groups"], arrays["group_weights"]
            ),
            **{name: arrays[name] for name in ARRAYS},
        )

    def estimate(
        self,
        batch: Communities | None,
        nodes: NodeTable,
        reference: Reference,
        learnt: Learnt,
        level: float,
    ) -> Estimates:
        """As `Auto.estimate`, from the raked posteriors; None: all nodes.

        Scenarios tilt the posteriors of nodes in no group with a benchmark. Those of
        the others are raked alone: a benchmark corrects for any choice of the labels.
        """
        moved, prior = replace(nodes, tilt=self.tilt), reference.prior

        def answer(scenario: Tilt | None) -> Estimates:
            sums, variance, inflation = scenario_sums(
                batch, moved, prior, learnt, scenario
            )
            own = _by_cell(batch, moved, prior, self.tilt, learnt.least)
            for k, code in enumerate(class_codes(len(prior))):
                variance[:, k] += self._change(k, code, own, sums.groups, learnt)
            return estimates_of(sums, np.maximum(variance, 0.0), inflation, level)

        return over_scenarios(learnt, answer, level)

    def _change(
        self, k: int, code: int, own: GroupSums, by_group: GroupSums, learnt: Learnt
    ) -> Floats:
        """What raking adds to the variance of the sums of communities, shape (S,)."""
        used = np.flatnonzero(~np.isnan(self.shares[:, code]))
        number = len(own.offsets) - 1
        if not len(used):
            return np.zeros(number)
        inside = self.incidence[:, used]
        n_groups = len(learnt.variances)
        v, a = learnt.variances[:, k], learnt.labelled[:, k]
        level = float((a * a * v).sum() + learnt.shared[k])

        def between(one: csr_array[Any], two: csr_array[Any]) -> Floats:
            """Covariance that groups and the level make, shape (S, B)."""
            # Every partition's groups add up to all members.
            own, other = (
                np.asarray(each.sum(axis=1)) / len(learnt.groups) for each in (one, two)
            )
            found = (one @ diags_array(v) @ two.T).toarray()
            found -= (one @ (v * a))[:, None] * other
            found -= own[:, None] * (two @ (v * a))
            return np.asarray(found + own[:, None] * other * level)

        theirs = _matrix(self.sums, self.sums.weights[:, k], n_groups)[used]
        se = self.se[used, code] * self.sizes[used]
        with one_blas_thread():
            middle = (inside.T @ diags_array(self.squares[:, k]) @ inside).toarray()
            middle += between(theirs, theirs) + np.diag(se**2)
            weights = inside.T @ diags_array(self.weights[:, k]) @ inside
            inverse = pseudo_inverse(weights.toarray())
            square = inverse @ middle @ inverse
        squares = own.weights if own.squares is None else own.squares
        n_cells = len(self.tilt.factors) + 1
        cells = np.arange(n_cells - 1)
        by_cell = _matrix(own, own.weights[:, k], n_cells)[:, cells] @ inside
        shared = _matrix(own, squares[:, k], n_cells)[:, cells] @ inside
        mine = _matrix(by_group, by_group.weights[:, k], n_groups)
        change = np.empty(number)
        # Sparse times dense goes row by row: batches change no bit.
        rows = max(1, BLOCK // len(used))
        for first in range(0, number, rows):
            some = slice(first, first + rows)
            part = by_cell[some]
            cross = shared[some].toarray() + between(mine[some], theirs)
            change[some] = (part.toarray() * (part @ square)).sum(axis=1)
            change[some] -= 2 * ((part @ inverse) * cross).sum(axis=1)
        return change

    def finish(
        self, answer: Prevalence, first: int | None, level: float
    ) -> dict[str, Floats]:
        """Columns of the benchmarked answers; groups of their own have the benchmark.

        `first` is the code of the first of the S communities; None: the one of all
        nodes.
        """
        found = [answer.prevalence, answer.lower, answer.upper]
        z = float(ndtri((1 + level) / 2))
        for g, code in enumerate(self.codes.tolist()):
            at = code + 1 if first is None else code - first
            if not 0 <= at < len(found[0]) or (code < 0) != (first is None):
                continue
            known = ~np.isnan(self.shares[g])
            share, half = self.shares[g, known], z * self.se[g, known]
            found[0][at, known] = share
            found[1][at, known] = np.maximum(share - half, 0.0)
            found[2][at, known] = np.minimum(share + half, 1.0)
        names = ("benchmarked", "benchmarked_lower", "benchmarked_upper")
        return dict(zip(names, found, strict=True))


def _by_cell(
    batch: Communities | None,
    nodes: NodeTable,
    prior: Floats,
    tilt: CellTilt,
    least: float,
) -> GroupSums:
    """Sums of communities by cell; the nodes in no cell are one more."""
    number, width = len(tilt.factors), len(class_codes(len(prior)))
    cells = np.where(tilt.cell < 0, number, tilt.cell).astype(np.int32)
    none = np.zeros((number + 1, width))
    return node_sums(batch, nodes, prior, cells, none, none, least).groups


def _matrix(sums: GroupSums, values: Floats32, width: int) -> csr_array[Any]:
    """One value of each row of sums, shape (S, groups)."""
    shape = (len(sums.offsets) - 1, width)
    parts = (values.astype(np.float64), sums.groups, sums.offsets)
    return csr_array(parts, shape=shape)
