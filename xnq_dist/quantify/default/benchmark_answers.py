"""Estimates raked to benchmarks, and their variance after raking.

Raking moves the estimate of a community S by ``b (T - estimates of the groups)`` to
first order, with ``b = H_SB inverse(H_BB)`` and ``H_SB`` the sum of u f' (1 - f') over
the nodes that S and the groups B share. With the covariance of `auto`,

    Var = V_SS - 2 b V_BS + b (V_BB + E) b',

where E are the squared standard errors of the benchmarks; a benchmarked group keeps
only its own E. Each class is taken against the rest, as in `auto`.
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
"""Accepted deviation from a benchmark, relative to its group's size."""
BLOCK = 1 << 22
"""Communities times benchmarks whose covariances are in memory at once."""
ARRAYS = ("weights", "squares", "codes", "shares", "se", "sizes")
"""Fields that `Benchmarked.arrays` copies."""


@dataclass(frozen=True, eq=False)
class Benchmarked:
    """Posteriors raked to G benchmarked groups, and sums for their intervals."""

    tilt: CellTilt
    incidence: csr_array[Any]
    """1 where the nodes of a cell are in a group, shape (cells, G)."""
    weights: Floats
    """Sum of u f' (1 - f') over the unlabelled nodes of each cell, shape (cells, K)."""
    squares: Floats
    """Sum of u^2 f' (1 - f'), shape (cells, K)."""
    sums: GroupSums
    """The benchmarked groups' sums by group of the graph's partitions."""
    codes: Ints
    """The groups' communities, -1: all nodes, shape (G,)."""
    shares: Floats
    """Known shares of the classes, NaN: not known, shape (G, C)."""
    se: Floats
    """Their standard errors, shape (G, C)."""
    sizes: Floats
    """Denominators of the groups' prevalence, shape (G,)."""

    @classmethod
    def of(
        cls, nodes: NodeTable, reference: Reference, learnt: Learnt, targets: Targets
    ) -> Benchmarked:
        """Rake the posteriors; benchmarks that contradict each other: `InputError`."""
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
        all_nodes = _by_cell(None, moved, prior, tilt, learnt.least)
        weights, squares = np.zeros((2, number + 1, width))
        weights[all_nodes.groups] = all_nodes.weights
        squares[all_nodes.groups] = (
            all_nodes.weights if all_nodes.squares is None else all_nodes.squares
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
        """Return arrays for a file."""
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
        """Construct from the result of `arrays`."""
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
        """Estimate as `Auto`, from the raked posteriors; no batch: all nodes.

        Scenarios tilt only posteriors of nodes outside the benchmarked groups: inside,
        a benchmark corrects for any choice of the labelled nodes.
        """
        moved, prior = replace(nodes, tilt=self.tilt), reference.prior

        def in_scenario(scenario: Tilt | None) -> Estimates:
            sums, variance, inflation = scenario_sums(
                batch, moved, prior, learnt, scenario
            )
            cells = _by_cell(batch, moved, prior, self.tilt, learnt.least)
            for k, code in enumerate(class_codes(len(prior))):
                variance[:, k] += self._change(k, code, cells, sums.groups, learnt)
            return estimates_of(sums, np.maximum(variance, 0.0), inflation, level)

        return over_scenarios(learnt, in_scenario, level)

    def _change(
        self, k: int, code: int, cells: GroupSums, by_group: GroupSums, learnt: Learnt
    ) -> Floats:
        """Change of the variance of communities' sums by raking, shape (S,)."""
        used = np.flatnonzero(~np.isnan(self.shares[:, code]))
        number = len(cells.offsets) - 1
        if not len(used):
            return np.zeros(number)
        inside = self.incidence[:, used]
        n_groups = len(learnt.variances)
        v, a = learnt.variances[:, k], learnt.labelled[:, k]
        level = float((a * a * v).sum() + learnt.shared[k])

        def between(one: csr_array[Any], two: csr_array[Any]) -> Floats:
            """Covariance through shifts of groups and of all nodes, shape (S, B)."""
            # The groups of each partition add up to all members.
            first, second = (
                np.asarray(each.sum(axis=1)) / len(learnt.groups) for each in (one, two)
            )
            covariance = (one @ diags_array(v) @ two.T).toarray()
            covariance -= (one @ (v * a))[:, None] * second
            covariance -= first[:, None] * (two @ (v * a))
            return np.asarray(covariance + first[:, None] * second * level)

        theirs = _matrix(self.sums, self.sums.weights[:, k], n_groups)[used]
        se = self.se[used, code] * self.sizes[used]
        with one_blas_thread():
            middle = (inside.T @ diags_array(self.squares[:, k]) @ inside).toarray()
            middle += between(theirs, theirs) + np.diag(se**2)
            weights = inside.T @ diags_array(self.weights[:, k]) @ inside
            inverse = pseudo_inverse(weights.toarray())
            square = inverse @ middle @ inverse
        squares = cells.weights if cells.squares is None else cells.squares
        n_cells = len(self.tilt.factors) + 1
        in_groups = np.arange(n_cells - 1)
        by_cell = _matrix(cells, cells.weights[:, k], n_cells)[:, in_groups] @ inside
        shared = _matrix(cells, squares[:, k], n_cells)[:, in_groups] @ inside
        ours = _matrix(by_group, by_group.weights[:, k], n_groups)
        change = np.empty(number)
        # Sparse products are computed by row, so batches do not change a bit.
        rows = max(1, BLOCK // len(used))
        for first in range(0, number, rows):
            some = slice(first, first + rows)
            part = by_cell[some]
            cross = shared[some].toarray() + between(ours[some], theirs)
            change[some] = (part.toarray() * (part @ square)).sum(axis=1)
            change[some] -= 2 * ((part @ inverse) * cross).sum(axis=1)
        return change

    def finish(
        self, raked: Prevalence, first: int | None, level: float
    ) -> dict[str, Floats]:
        """Return the benchmarked columns; benchmarked groups get their benchmarks.

        `first` is the code of the first of the S communities; None: there is one
        community of all nodes.
        """
        columns = [raked.prevalence, raked.lower, raked.upper]
        z = float(ndtri((1 + level) / 2))
        for g, code in enumerate(self.codes.tolist()):
            at = code + 1 if first is None else code - first
            if not 0 <= at < len(columns[0]) or (code < 0) != (first is None):
                continue
            known = ~np.isnan(self.shares[g])
            share, half = self.shares[g, known], z * self.se[g, known]
            columns[0][at, known] = share
            columns[1][at, known] = np.maximum(share - half, 0.0)
            columns[2][at, known] = np.minimum(share + half, 1.0)
        names = ("benchmarked", "benchmarked_lower", "benchmarked_upper")
        return dict(zip(names, columns, strict=True))


def _by_cell(
    batch: Communities | None,
    nodes: NodeTable,
    prior: Floats,
    tilt: CellTilt,
    least: float,
) -> GroupSums:
    """Sums of communities by cell; the nodes in no cell are one more cell."""
    number, width = len(tilt.factors), len(class_codes(len(prior)))
    cells = np.where(tilt.cell < 0, number, tilt.cell).astype(np.int32)
    none = np.zeros((number + 1, width))
    return node_sums(batch, nodes, prior, cells, none, none, least).groups


def _matrix(sums: GroupSums, values: Floats32, width: int) -> csr_array[Any]:
    """Sparse matrix of one column of the sums, shape (S, groups)."""
    shape = (len(sums.offsets) - 1, width)
    parts = (values.astype(np.float64), sums.groups, sums.offsets)
    return csr_array(parts, shape=shape)
