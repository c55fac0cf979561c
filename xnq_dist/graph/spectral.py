"""Spectral radius of the adjacency, for every graph and with little memory.

For a matrix without negative entries the radius is itself an eigenvalue, the one with
the largest real part (Perron-Frobenius), so bipartite graphs, where -rho has the same
modulus, need no special treatment. A matrix that is not symmetric is first restricted
to its strongly connected components: the radius is the largest of theirs, and 0 for a
graph without cycles. Without the restriction, iterations find the eigenvalues of chains
of components to a few digits only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Floats32, Ints, Ints32
from xnq_dist.core.errors import InputError
from xnq_dist.core.kernel import kernel, prefetch
from xnq_dist.core.random_bits import mix
from xnq_dist.core.threads import one_blas_thread
from xnq_dist.graph.csr import Csr

__all__ = ["adjacency_radius", "is_symmetric"]

log = logging.getLogger(__name__)

LANCZOS, ARNOLDI = 1e-7, 1e-9
"""Relative tolerance of the residual for symmetric and other matrices; the result is
then rounded to 6 digits."""
AHEAD = 64
"""Prefetch distance in edges."""
STEPS = 2000
"""Maximum number of products of the Lanczos recurrence."""
CHECK_EVERY = 8
"""Steps between two convergence checks, after the first steps."""
NEAR, EXACT = 1e-5, 1e-11
"""The residual may be as large as `NEAR` where the gap to the next eigenvalue bounds
the error by `EXACT`, both relative to the eigenvalue."""
DENSE = 64
"""Up to this many rows all eigenvalues are computed."""


def adjacency_radius(csr: Csr, symmetric: bool) -> float:
    """rho(A) of a canonical adjacency, rounded to 6 significant digits.

    The rows are read once per product, on threads. Sums run in canonical order in
    float64, so the result does not depend on chunks or partitions.
    """
    n = len(csr.indptr) - 1
    component = np.empty(0, np.int32)
    if not symmetric:
        component = strong_components(csr.indptr, *csr.arrays())

    def product(x: Floats) -> Floats:
        sums, column = np.empty(n), x.reshape(-1, 1)
        csr.map(lambda r: multiply(*r.edges, r.weights, component, column, sums))
        return sums

    # Nodes with an edge of positive weight: in a component they have one into them.
    live = product(np.ones(n)) > 0
    if not live.any():
        return 0.0
    # Degrees are the first power iteration of a graph without weights.
    degrees = np.maximum(np.diff(csr.indptr), 1) if symmetric else np.ones(n)
    start = np.where(live, degrees, 0.0)
    return float(f"{spectral_radius(product, start, symmetric):.6g}")


def spectral_radius(
    matvec: Callable[[Floats], Floats], start: Floats, symmetric: bool
) -> float:
    """Largest real part of the eigenvalues of a matrix without negative entries.

    Parameters
    ----------
    matvec
        Product with a vector of shape (n,).
    start
        Start vector, shape (n,), n at least 1, positive where the matrix has edges; it
        is overwritten.
    symmetric
        Whether the matrix is symmetric: the Lanczos recurrence; else all eigenvalues of
        few rows, or ARPACK with few Arnoldi vectors, to save memory, then with more.

    Raises
    ------
    InputError
        When ARPACK does not converge.
    """
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs

    n = len(start)
    with one_blas_thread():
        if symmetric:
            return max(largest_eigenvalue(matvec, start), 0.0)
        if n <= DENSE:
            columns = [matvec(row) for row in np.eye(n)]
            values = np.linalg.eigvals(np.stack(columns, axis=1))
            return float(max(values.real.max(), 0.0))
        operator = LinearOperator((n, n), matvec=matvec, dtype=np.float64)
        for basis in (20 if n <= 10**6 else 8, 40):
            try:
                value = eigs(
                    operator,
                    k=1,
                    which="LR",
                    ncv=min(basis, n),
                    v0=start / np.linalg.norm(start),
                    tol=ARNOLDI,
                    maxiter=300,
                    return_eigenvectors=False,
                )[0]
            except ArpackNoConvergence:
                log.info("rho(A): ARPACK with %d vectors did not converge", basis)
            else:
                return float(max(value.real, 0.0))
    raise InputError(
        "rho(A), the spectral radius of this directed graph, was not found by ARPACK: "
        "set input.directed = false to use edges in both directions"
    )


def largest_eigenvalue(matvec: Callable[[Floats], Floats], start: Floats) -> float:
    """Largest eigenvalue of a symmetric matrix, with three vectors of memory.

    Uses the three-term recurrence of Lanczos without reorthogonalisation: rounding
    makes copies of converged eigenvalues, which does not affect the largest one (Paige
    1972). After `STEPS` steps without convergence the last value, a lower bound, is
    returned with a warning.

    Parameters
    ----------
    matvec
        Product with a vector of shape (n,); its result may be overwritten.
    start
        Shape (n,), not orthogonal to the eigenvector: a positive vector for a matrix
        without negative entries. It is overwritten.

    Notes
    -----
    The error of a Ritz value is at most its residual r, and at most r^2 over the
    distance to the other eigenvalues (Parlett 1998, theorem 11.7.1), which are
    approximated by the second Ritz value.

    References
    ----------
    C. Lanczos, J. Res. Natl. Bur. Stand. 45 (1950) 255. B. N. Parlett, The Symmetric
    Eigenvalue Problem, SIAM 1998.
    """
    from scipy.linalg import eigh_tridiagonal

    current = start
    current /= np.linalg.norm(current)
    before = np.zeros_like(current)
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    beta = value = 0.0
    for step in range(1, STEPS + 1):
        coming = matvec(current)
        alpha = float(np.dot(coming, current))
        # In place: another vector of all nodes would add a third to the memory.
        before *= beta
        coming -= before
        np.multiply(current, alpha, out=before)
        coming -= before
        beta = float(np.linalg.norm(coming))
        diagonal.append(alpha)
        if step % CHECK_EVERY == 0 or step <= 4 * CHECK_EVERY or not beta:
            values, vectors = eigh_tridiagonal(
                np.array(diagonal),
                np.array(off_diagonal),
                select="i",
                select_range=(max(step - 2, 0), step - 1),
            )
            value = float(values[-1])
            residual = beta * abs(float(vectors[-1, -1]))
            size = max(abs(value), np.finfo(np.float64).tiny)
            gap = value - float(values[0])
            sharp = gap > 0 and residual <= NEAR * size
            if residual <= LANCZOS * size or (
                sharp and residual * residual <= EXACT * size * gap
            ):
                return value
        off_diagonal.append(beta)
        coming /= beta
        before, current = current, coming
    log.warning(
        "rho(A) = %.6g may be inaccurate in its last digits: other versions of NumPy "
        "may give slightly different results",
        value,
    )
    return value


def is_symmetric(csr: Csr) -> bool:
    """Whether every edge has its reverse with the same weight, in one pass.

    Each edge u < v adds a 64-bit hash of (u, v, weight), its reverse subtracts it. If
    the sum is zero, the graph is symmetric except with probability 2^-64.
    """
    sums = csr.map(lambda r: symmetry_sum(*r.edges, r.weights.view(np.uint32)))
    return sum(map(int, sums)) % 2**64 == 0


@kernel
def symmetry_sum(
    first: int,
    indptr: Ints,
    indices: Ints32,
    bits: NDArray[np.uint32],
) -> np.uint64:
    """Sum of hashes of edges above the diagonal minus those below, modulo 2^64."""
    weighted, total = bits.shape[0] > 0, np.uint64(0)
    for row in range(indptr.shape[0] - 1):
        v = np.int64(first + row)
        for edge in range(indptr[row], indptr[row + 1]):
            u = np.int64(indices[edge])
            x = mix(np.uint64(min(u, v)) << np.uint64(32) | np.uint64(max(u, v)))
            if weighted:
                x = mix(x + np.uint64(bits[edge]))
            if u < v:
                total += x
            elif u > v:
                total -= x
    return total


@kernel
def multiply(
    first: int,
    indptr: Ints,
    indices: Ints32,
    weights: Floats32,
    component: Ints32,
    x: Floats,
    y: Floats,
) -> None:
    """``y = A x`` in some rows, over edges inside components (empty: over all).

    `x` has shape (N, 1) and `y` (N,); sums run in the order of the edges.
    """
    weighted = weights.shape[0] > 0
    together = component.shape[0] == 0
    last = indices.shape[0] - 1
    for row in range(indptr.shape[0] - 1):
        v = first + row
        total = 0.0
        for edge in range(indptr[row], indptr[row + 1]):
            prefetch(x, indices[min(edge + AHEAD, last)], 0)
            u = indices[edge]
            if together or component[u] == component[v]:
                total += (np.float64(weights[edge]) if weighted else 1.0) * x[u, 0]
        y[v] = total


@kernel
def strong_components(indptr: Ints, indices: Ints32, weights: Floats32) -> Ints32:
    """Strongly connected component of each node (Tarjan 1972, without recursion).

    Edges of weight 0 do not count. The components are numbered from 0, shape (N,).
    """
    n = indptr.shape[0] - 1
    weighted = weights.shape[0] > 0
    order = np.full(n, -1, np.int32)
    low = np.empty(n, np.int32)
    component = np.full(n, -1, np.int32)
    edge_at = indptr[:-1].copy()
    path = np.empty(n, np.int32)
    open_nodes = np.empty(n, np.int32)
    seen, n_open, found = 0, 0, 0
    for root in range(n):
        if order[root] >= 0:
            continue
        depth = 0
        path[0] = root
        while depth >= 0:
            v = path[depth]
            if order[v] < 0:
                order[v] = seen
                low[v] = seen
                seen += 1
                open_nodes[n_open] = v
                n_open += 1
            if edge_at[v] < indptr[v + 1]:
                edge = edge_at[v]
                edge_at[v] += 1
                if weighted and weights[edge] == 0:
                    continue
                u = indices[edge]
                if order[u] < 0:
                    depth += 1
                    path[depth] = u
                elif component[u] < 0:
                    low[v] = min(low[v], order[u])
                continue
            if low[v] == order[v]:
                while True:
                    n_open -= 1
                    u = open_nodes[n_open]
                    component[u] = found
                    if u == v:
                        break
                found += 1
            depth -= 1
            if depth >= 0:
                low[path[depth]] = min(low[path[depth]], low[v])
    return component
