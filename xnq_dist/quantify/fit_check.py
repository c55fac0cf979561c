"""Whether a shift of class proportions alone explains a community's posteriors.

Under prior-probability shift, which SLD and the adjusted counts assume, the posteriors
of a community are drawn from a mixture of the classes' own distributions, as the
labelled nodes show them. The members fall into cells; the distance of their counts from
the best mixture, in units of what sampling of members *and* of labelled nodes makes of
it, is a minimum chi-square statistic.

References
----------
J. Neyman, "Contribution to the theory of the chi-square test", Proceedings of the
Berkeley Symposium, 1949.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import chdtrc

from xnq_dist.quantify.interface import Communities, NodeTable, Reference

__all__ = ["FitCheck", "fit_pvalues", "flags"]

CELLS_OF_TWO = 8
"""Cells of equal size of the posterior of the second of two classes."""
CELLS_A_CLASS = 2
"""Of more classes: cells of the largest posterior, for each class that has it."""
LEAST_MEMBERS_A_CELL = 5
"""Members a cell that a community has to have: with fewer the statistic is no
chi-square."""
LEAST_LABELS_A_CELL = 3
"""Labelled nodes that a cell must hold, else it is joined to the one before."""
ROUNDS = 4
"""Times that weights and mixture are found from each other."""
ASSUME_NO_SHIFT = ("cc", "pcc")
"""Quantifiers that a rejected shift of proportions says nothing of."""
DRIFT = 1.0
"""Times that the drift of all nodes is taken for noise."""
ROWS = 1 << 20


@dataclass(frozen=True, eq=False)
class FitCheck:
    """Cells, and how each class falls into them."""

    cell_of: NDArray[np.int64]
    """Final cell of each raw cell."""
    edges: tuple[NDArray[np.float64], ...]
    """Inner edges of the raw cells: one array for two classes, else one a class."""
    shares: NDArray[np.float64]
    """``[b, k]``: share of class k in cell b, columns sum to 1, shape (B, C)."""
    sizes: NDArray[np.float64]
    """Labelled nodes of each class, shape (C,)."""
    drift: NDArray[np.float64]
    """By how much all unlabelled nodes together are off the best mixture, shape (B,):
    a labelled node's posterior is of one fold's model, another's of all, and as far
    as that goes no community can be told from it."""

    @classmethod
    def of(cls, reference: Reference, nodes: NodeTable) -> FitCheck | None:
        """From the labelled nodes; None when they are too few for a check."""
        if reference.posteriors is None or reference.labels is None:
            return None
        rows = np.asarray(reference.posteriors, np.float64)
        labels, n_classes = reference.labels, rows.shape[1]
        sizes = np.bincount(labels, minlength=n_classes).astype(np.float64)
        if (sizes < LEAST_LABELS_A_CELL).any():
            return None
        if n_classes == 2:
            steps = np.arange(1, CELLS_OF_TWO) / CELLS_OF_TWO
            edges: tuple[NDArray[np.float64], ...] = (np.quantile(rows[:, 1], steps),)
        else:
            top, most = rows.argmax(axis=1), rows.max(axis=1)
            steps = np.arange(1, CELLS_A_CLASS) / CELLS_A_CLASS
            edges = tuple(
                np.quantile(most[top == k], steps)
                if (top == k).any()
                else np.full(CELLS_A_CLASS - 1, 0.5)
                for k in range(n_classes)
            )
        raw = _raw_cells(rows, edges)
        count = _raw_count(n_classes)
        cell_of = _joined(np.bincount(raw, minlength=count))
        n_cells = int(cell_of.max()) + 1
        if n_cells <= n_classes:
            return None  # any counts are a mixture of so many classes
        table = np.zeros((n_cells, n_classes))
        np.add.at(table, (cell_of[raw], labels), 1.0)
        check = cls(cell_of, edges, table / sizes, sizes, np.zeros(n_cells))
        whole = np.zeros(n_cells)
        for first in range(0, len(nodes.labels), ROWS):
            some = slice(first, first + ROWS)
            free = nodes.posteriors[some][nodes.unlabelled[some]]
            whole += np.bincount(check.cells_of(free), minlength=n_cells)
        if not whole.sum():
            return check
        best = _best(whole[None], check)[0][0]
        return replace(check, drift=whole / whole.sum() - check.shares @ best)

    @property
    def cells(self) -> int:
        """Number of cells, B."""
        return len(self.shares)

    def cells_of(self, posteriors: NDArray[np.floating]) -> NDArray[np.int64]:
        """Cell of each row, shape (n,)."""
        rows = np.asarray(posteriors, np.float64)
        return np.asarray(self.cell_of[_raw_cells(rows, self.edges)])


def _raw_count(n_classes: int) -> int:
    return CELLS_OF_TWO if n_classes == 2 else CELLS_A_CLASS * n_classes


def _raw_cells(
    rows: NDArray[np.float64], edges: tuple[NDArray[np.float64], ...]
) -> NDArray[np.int64]:
    if rows.shape[1] == 2:
        return np.searchsorted(edges[0], rows[:, 1], side="right")
    top, most = rows.argmax(axis=1), rows.max(axis=1)
    found = np.empty(len(rows), np.int64)
    for k, inner in enumerate(edges):
        own = top == k
        place = np.searchsorted(inner, most[own], side="right")
        found[own] = CELLS_A_CLASS * k + place
    return found


def _joined(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Cells so that each holds labelled nodes enough; neighbours are joined."""
    cell, held = 0, 0
    found = np.empty(len(counts), np.int64)
    for raw, count in enumerate(counts.tolist()):
        found[raw] = cell
        held += count
        if held >= LEAST_LABELS_A_CELL and raw + 1 < len(counts):
            cell, held = cell + 1, 0
    if held < LEAST_LABELS_A_CELL and cell > 0:
        found[found == cell] = cell - 1
    return found


def fit_pvalues(
    batch: Communities, nodes: NodeTable, check: FitCheck | None
) -> NDArray[np.float64]:
    """P-value of prior-probability shift for every community.

    Parameters
    ----------
    batch, nodes
        As quantifiers take them; unlabelled members count.
    check
        None: no check.

    Returns
    -------
    NDArray
        Shape (S,), uniform where the assumption holds; NaN where there are too few
        members (5 a cell) to tell.

    Notes
    -----
    With O the counts of n members in B cells, F the classes' shares in them and m_k the
    labelled nodes of class k, ``O - n F q`` has the covariance ``n (diag(P) - P P') +
    n^2 sum_k q_k^2 / m_k (diag(F_k) - F_k F_k')``, ``P = F q``. The statistic is the
    least of its quadratic form over q: chi-square with B - C degrees of freedom, one
    more for each class whose q is held at 0.
    """
    found = np.full(len(batch), np.nan)
    if check is None:
        return found
    free = nodes.unlabelled[batch.members]
    members = batch.members[free]
    community = np.repeat(np.arange(len(batch)), np.diff(batch.offsets))[free]
    cells = check.cells_of(nodes.posteriors[members])
    counts = np.bincount(
        community * check.cells + cells, minlength=len(batch) * check.cells
    ).reshape(len(batch), check.cells)
    enough = np.flatnonzero(counts.sum(axis=1) >= LEAST_MEMBERS_A_CELL * check.cells)
    found[enough] = _pvalues(counts[enough].astype(np.float64), check)
    return found


def _pvalues(counts: NDArray[np.float64], check: FitCheck) -> NDArray[np.float64]:
    _, statistic, held = _best(counts, check)
    n_cells, n_classes = check.shares.shape
    return np.asarray(chdtrc(n_cells - n_classes + held, statistic))


def _best(
    counts: NDArray[np.float64], check: FitCheck
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Best mixture of each row of counts, its statistic, classes held at 0."""
    shares, sizes = check.shares, check.sizes
    n_cells, n_classes = shares.shape
    # A cell that a class never fell into may still hold some of it.
    smooth = (shares * sizes + 0.5) / (sizes + 0.5 * n_cells)
    lean = smooth[:-1]
    spreads = np.stack(
        [
            (np.diag(lean[:, k]) - np.outer(lean[:, k], lean[:, k])) / sizes[k]
            for k in range(n_classes)
        ]
    )
    drift = DRIFT * np.outer(check.drift[:-1], check.drift[:-1])
    q = np.empty((len(counts), n_classes))
    statistic, held = np.empty(len(counts)), np.empty(len(counts))
    _mixtures(
        counts,
        np.ascontiguousarray(shares[:-1]),
        np.ascontiguousarray(lean),
        spreads,
        drift,
        q,
        statistic,
        held,
    )
    return q, statistic, held


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _mixtures(
    counts: NDArray[np.float64],
    shares: NDArray[np.float64],
    smooth: NDArray[np.float64],
    spreads: NDArray[np.float64],
    drift: NDArray[np.float64],
    mixtures: NDArray[np.float64],
    statistic: NDArray[np.float64],
    held: NDArray[np.float64],
) -> None:
    """Weights and mixture from each other, row by row; the last three are filled in.

    One row at a time, with products of one shape: the same bits in any batch. Of q the
    last class is what the others leave.
    """
    cells, classes = shares.shape
    design = np.empty((cells, classes - 1))
    for a in range(cells):
        for k in range(classes - 1):
            design[a, k] = shares[a, k] - shares[a, classes - 1]
    covariance = np.empty((cells, cells))
    sides = np.empty((cells, classes))
    normal = np.empty((classes - 1, classes - 1))
    right = np.empty((classes - 1, 1))
    mixed, off = np.empty(cells), np.empty((cells, 1))
    q = np.empty(classes)
    for s in range(counts.shape[0]):
        size = counts[s].sum()
        q[:] = 1.0 / classes
        for _ in range(ROUNDS):
            for a in range(cells):
                mixed[a] = 0.0
                for k in range(classes):
                    mixed[a] += smooth[a, k] * q[k]
            for a in range(cells):
                for b in range(cells):
                    covariance[a, b] = drift[a, b] - mixed[a] * mixed[b] / size
                    for k in range(classes):
                        covariance[a, b] += q[k] * q[k] * spreads[k, a, b]
                covariance[a, a] += mixed[a] / size
                # Right sides: the design, and what is left of the counts.
                for k in range(classes - 1):
                    sides[a, k] = design[a, k]
                sides[a, classes - 1] = counts[s, a] / size - shares[a, classes - 1]
            solved = np.linalg.solve(covariance, sides)
            for k in range(classes - 1):
                for j in range(classes - 1):
                    normal[k, j] = 1e-12 if k == j else 0.0
                    for a in range(cells):
                        normal[k, j] += design[a, k] * solved[a, j]
                right[k, 0] = 0.0
                for a in range(cells):
                    right[k, 0] += design[a, k] * solved[a, classes - 1]
            found = np.linalg.solve(normal, right)
            held[s], total, last = 0.0, 0.0, 1.0
            for k in range(classes):
                value = found[k, 0] if k < classes - 1 else last
                last -= value
                if value < 0.0:
                    held[s] += 1.0
                    value = 0.0
                q[k] = value
                total += value
            for k in range(classes):
                q[k] /= total
            for a in range(cells):
                off[a, 0] = counts[s, a] / size
                for k in range(classes):
                    off[a, 0] -= shares[a, k] * q[k]
            weighted = np.linalg.solve(covariance, off)
            statistic[s] = 0.0
            for a in range(cells):
                statistic[s] += off[a, 0] * weighted[a, 0]
        mixtures[s] = q


def flags(
    quantifier: str,
    pvalues: NDArray[np.float64],
    alpha: float,
    n_labelled: NDArray[np.int64],
    notes: Sequence[str | None],
) -> tuple[NDArray[np.bool_], tuple[str | None, ...]]:
    """Which communities to warn of, and the notes with the warnings.

    Parameters
    ----------
    quantifier
        Its name, or ``by_class`` for `auto` on samples drawn by class. Plain ``auto``
        assumes no such shift: it is flagged only where the community has no label that
        could show how its posteriors are.
    pvalues
        Of `fit_pvalues`, shape (S,).
    alpha
        Below it the check warns.
    n_labelled
        Labelled members, shape (S,).
    notes
        What is said already.
    """
    low = pvalues < alpha
    if quantifier in ASSUME_NO_SHIFT:
        low = np.zeros_like(low)
    elif quantifier == "auto":
        low = low & (n_labelled == 0)
    said: list[str | None] = []
    for note, warn, p in zip(notes, low.tolist(), pvalues.tolist(), strict=True):
        if not warn:
            said.append(note)
            continue
        warning = (
            f"more than class proportions shifted (p = {p:.2g}): the answer can be far "
            "off; label some of its nodes"
        )
        if quantifier == "by_class":
            warning += ", or set memberships.drawn = unknown"
        elif quantifier != "auto":
            warning += ", or set quantifier = auto"
        said.append(warning if note is None else f"{note}; {warning}")
    return low, tuple(said)
