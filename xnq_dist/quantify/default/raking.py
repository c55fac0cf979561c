"""Posteriors changed as little as possible until sums over groups meet benchmarks.

A cell has the nodes that are in the same benchmarked groups. Its posteriors become

    f'_c = f_c exp(t_c) / sum_d f_d exp(t_d),     t_c = sum of b_gc over its groups g,

which are nearest to the old ones in relative entropy among those that meet all
benchmarks (generalised raking). The tilts b minimise the convex function
``sum_v u_v log(sum_c f_vc exp(t_c)) - sum_gc b_gc T_gc``. Newton's method solves for
all groups at once, so overlapping groups need no alternation.

References
----------
J.-C. Deville, C.-E. Sarndal, "Calibration estimators in survey sampling", Journal of
the American Statistical Association 87, 1992.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from scipy.optimize import linprog
from scipy.sparse import csr_array, diags_array, hstack, vstack
from scipy.sparse import eye_array as identity

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints32
from xnq_dist.core.blocks import one_blas_thread
from xnq_dist.core.errors import StageError
from xnq_dist.quantify.default.node_sums import posterior_row
from xnq_dist.quantify.interface import Communities, NodeTable

__all__ = ["Cells", "contradiction", "pseudo_inverse", "rake"]


TOLERANCE = 1e-10
"""Maximum deviation from a benchmark, relative to its group's size."""
STEPS, HALVINGS = 100, 30
MAX_VARIABLES = 200_000
"""Cells times classes up to which benchmarks are checked against each other."""
MAX_PAIRS = 5000
CONTRADICTS = 1e-7
"""Deviation of benchmarks above which they contradict, relative to a group's size."""
SOLVED = 1e-6
"""Accuracy of the linear program, relative to the largest cell."""
SINGULAR = 1e-12


@dataclass(frozen=True, eq=False)
class Cells:
    """Partition of the nodes by the benchmarked groups that they are in."""

    cell: Ints32
    """Cell of every node, -1 in no group, shape (N,)."""
    incidence: csr_array[Any]
    """1 where the nodes of a cell are in a group, shape (cells, G)."""

    @classmethod
    def of(cls, groups: Communities, n_nodes: int) -> Cells:
        """Compute the cells of groups, which may overlap; members are unique."""
        cell = np.zeros(n_nodes, np.int64)
        sets: list[tuple[int, ...]] = [()]
        for g in range(len(groups)):
            members = groups.members[groups.offsets[g] : groups.offsets[g + 1]]
            old, within = np.unique(cell[members], return_inverse=True)
            cell[members] = len(sets) + within
            sets += [(*sets[number], g) for number in old.tolist()]
        used, index = np.unique(np.append(cell, 0), return_inverse=True)
        # The first cell has the nodes in no group.
        kept = [sets[number] for number in used[1:].tolist()]
        rows = np.repeat(np.arange(len(kept)), [len(each) for each in kept])
        columns = np.array([g for each in kept for g in each], np.int64)
        shape = (len(kept), len(groups))
        ones = np.ones(len(rows))
        incidence = csr_array((ones, (rows, columns)), shape=shape)
        return cls((index[:-1] - 1).astype(np.int32), incidence)

    def sums(self, values: Floats) -> Floats:
        """Sum one value per node over the nodes of each cell, shape (cells,)."""
        inside = self.cell >= 0
        number = self.incidence.shape[0]
        return np.bincount(self.cell[inside], values[inside], number).astype(np.float64)


def rake(
    nodes: NodeTable, prior: Floats, cells: Cells, targets: Floats, sizes: Floats
) -> tuple[Floats, Floats]:
    """Compute the factors on the cells' posteriors that meet all targets.

    Targets are sums of the posteriors of the unlabelled nodes of each group, (G, C),
    NaN where none is known; deviations are relative to `sizes`, (G,). Returns the
    factors, (cells, C), and the deviation from each target, (G, C): at most `TOLERANCE`
    where all can be met.
    """
    n_classes = nodes.posteriors.shape[1]
    incidence, used = cells.incidence, ~np.isnan(targets)
    solved = used.copy()
    # The posteriors of a node sum to 1, so one class follows from the others.
    solved[used.all(axis=1), 0] = False
    required = np.where(used, targets, 0.0)
    weights = np.ones(len(nodes.labels)) if nodes.weights is None else nodes.weights
    of_cell = cells.sums(np.where(nodes.unlabelled, weights, 0.0))

    def evaluate(tilts: Floats) -> tuple[float, Floats, Floats, Floats]:
        logits = np.asarray(incidence @ tilts)
        top = logits.max(axis=1, keepdims=True)
        factors = np.exp(logits - top)
        first = np.zeros((len(factors), n_classes))
        second = np.zeros((len(factors), n_classes, n_classes))
        value = _cell_sums(
            cells.cell,
            nodes.unlabelled,
            nodes.posteriors,
            weights,
            prior / prior.sum(),
            factors,
            first,
            second,
        )
        value += float((of_cell * top[:, 0]).sum() - (tilts * required).sum())
        return value, first, second, factors

    tilts = np.zeros(targets.shape)
    value, first, second, factors = evaluate(tilts)
    with one_blas_thread():
        for _ in range(STEPS):
            left = np.where(used, incidence.T @ first - required, 0.0)
            worst = np.abs(left / sizes[:, None]).max()
            if worst <= TOLERANCE:
                break
            inverse = pseudo_inverse(_hessian(incidence, first, second, solved))
            step = np.zeros(tilts.shape)
            step[solved] = -inverse @ left[solved]
            slope = float((step * left)[solved].sum())
            for halving in range(HALVINGS):
                length = 0.5**halving
                tried = evaluate(tilts + length * step)
                after = np.where(used, incidence.T @ tried[1] - required, 0.0)
                closer = np.abs(after / sizes[:, None]).max() < worst
                if closer or tried[0] < value + 1e-4 * length * slope:
                    break
            else:
                break
            tilts += length * step
            value, first, second, factors = tried
    left = np.where(used, incidence.T @ first - required, 0.0)
    return factors, np.asarray(left / sizes[:, None])


def pseudo_inverse(matrix: Floats) -> Floats:
    """Pseudo-inverse of a positive semi-definite matrix, via a unit diagonal."""
    scale = 1.0 / np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    values, vectors = np.linalg.eigh(matrix * scale[:, None] * scale)
    large = values > SINGULAR * max(float(values.max(initial=0.0)), 1e-300)
    inverse = (vectors[:, large] / values[large]) @ vectors[:, large].T
    return np.asarray(inverse * scale[:, None] * scale)


def _hessian(
    incidence: csr_array[Any], first: Floats, second: Floats, solved: Bools
) -> Floats:
    n_groups, n_classes = solved.shape
    hessian = np.zeros((n_groups, n_classes, n_groups, n_classes))
    for c in range(n_classes):
        for d in range(n_classes):
            values = (first[:, c] if c == d else 0.0) - second[:, c, d]
            of_pair = incidence.T @ diags_array(values) @ incidence
            hessian[:, c, :, d] = of_pair.toarray()
    return np.asarray(hessian[solved][:, solved])


@njit(cache=True, nogil=True, error_model="numpy")
def _cell_sums(
    cell: Ints32,
    unlabelled: Bools,
    posteriors: Floats32,
    weights: Floats,
    prior: Floats,
    factors: Floats,
    first: Floats,
    second: Floats,
) -> float:
    """Add up f' and its products by cell; return the sum of the logs of its norms."""
    n_classes = prior.shape[0]
    row = np.empty(n_classes)
    value = 0.0
    for v in range(cell.shape[0]):
        at = cell[v]
        if at < 0 or not unlabelled[v]:
            continue
        u = weights[v]
        value += u * np.log(posterior_row(posteriors[v], prior, factors[at], row))
        for c in range(n_classes):
            first[at, c] += u * row[c]
            for d in range(n_classes):
                second[at, c, d] += u * row[c] * row[d]
    return value


def contradiction(
    of_cell: Floats, incidence: csr_array[Any], targets: Floats, sizes: Floats
) -> tuple[int, int, bool] | None:
    """Find two groups whose targets cannot both be met; None where all targets can.

    A linear program divides each cell's weight of unlabelled nodes among the classes,
    regardless of the posteriors. Where only three groups or more contradict each other,
    the two with the largest deviations are returned, and True.
    """
    if len(of_cell) * targets.shape[1] > MAX_VARIABLES:
        return None
    missed = _missed(of_cell, incidence, targets, sizes)
    if missed.max(initial=0.0) <= CONTRADICTS:
        return None
    shared = (incidence.T @ incidence).tocoo()
    pairs = [
        (i, j)
        for i, j in zip(*(each.tolist() for each in shared.coords), strict=True)
        if i < j and max(missed[i], missed[j]) > CONTRADICTS
    ]
    for i, j in pairs[:MAX_PAIRS]:
        two = [i, j]
        of_pair = incidence[:, two]
        some = np.asarray(of_pair.sum(axis=1)) > 0
        deviation = _missed(of_cell[some], of_pair[some], targets[two], sizes[two])
        if deviation.max() > CONTRADICTS:
            return i, j, False
    if (missed * sizes).max() <= SOLVED * of_cell.max():
        return None
    first, second = np.argsort(-missed, kind="stable")[:2].tolist()
    return min(first, second), max(first, second), True


def _missed(
    of_cell: Floats, incidence: csr_array[Any], targets: Floats, sizes: Floats
) -> Floats:
    """Deviations with the smallest total, relative to the groups' sizes, shape (G,)."""
    n_classes = targets.shape[1]
    groups, classes = np.nonzero(~np.isnan(targets))
    n_cells, number = len(of_cell), len(groups)
    scale = max(float(of_cell.max(initial=0.0)), 1e-300)
    divided = hstack([identity(n_cells)] * n_classes)
    blocks = [
        hstack(
            [
                incidence[:, groups[classes == c]].T
                if d == c
                else csr_array((int(np.count_nonzero(classes == c)), n_cells))
                for d in range(n_classes)
            ]
        )
        for c in range(n_classes)
    ]
    order = np.argsort(classes, kind="stable")
    slack = hstack([identity(number), -identity(number)])
    rows = hstack([vstack(blocks), slack])
    left = vstack([hstack([divided, csr_array((n_cells, 2 * number))]), rows])
    right = np.concatenate([of_cell, targets[groups, classes][order]]) / scale
    size = sizes[groups][order]
    cost = np.concatenate([np.zeros(n_cells * n_classes), 1 / size, 1 / size]) * scale
    solution = linprog(cost, A_eq=left.tocsr(), b_eq=right, method="highs")
    if solution.x is None:
        raise StageError(
            "the benchmarks could not be checked against each other "
            f"({solution.message}): this is an internal error, please report it"
        )
    parts = solution.x[-2 * number :] * scale
    missed = np.zeros(len(sizes))
    np.add.at(missed, groups[order], (parts[:number] + parts[number:]) / size)
    return missed
