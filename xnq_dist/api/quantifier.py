"""An estimator in the manner of scikit-learn and QuaPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from xnq_dist.api.estimate import run_tables, settings_of, temporary_folder
from xnq_dist.api.frames import is_matrix, members_of, plain, tables_of, written
from xnq_dist.api.result import PrevalenceResult
from xnq_dist.core.arrays import Floats
from xnq_dist.jobs import Request, requantify

__all__ = ["NetworkQuantifier"]

SETTINGS = {
    "method": "method",
    "quantifier": "quantifier",
    "labels__drawn": "labels_drawn",
    "reservoir__dim": "dim",
    "reservoir__supersteps": "supersteps",
    "seed": "random_state",
}
"""Arguments of the estimator, by their names as settings."""
UNCHECKED = "no_validation"
"""Tells scikit-learn to leave labels alone: they may be text, None or NaN."""


@dataclass(kw_only=True, eq=False, repr=False)  # scikit-learn has its own repr
class NetworkQuantifier(BaseEstimator):  # type: ignore[misc]
    """Class prevalence of communities of one graph.

    The estimator is transductive: `fit` learns from a graph and the labels of some of
    its nodes, and `quantify` takes communities of these nodes.

    Parameters
    ----------
    method, quantifier, labels_drawn, dim, supersteps
        Settings ``method``, ``quantifier``, ``labels.drawn``, ``reservoir.dim`` and
        ``reservoir.supersteps``.
    unlabelled
        Value of `y` that marks an unlabelled node, such as -1. None and NaN always do.
    settings
        Further settings, with the names of `estimate_prevalence`.
    random_state
        Seed of every random stream.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        The classes.
    n_features_in_ : int
        Columns of the adjacency matrix, that is nodes; only for matrices.
    result_ : PrevalenceResult
        Result of `fit`, for all nodes as one community.

    Examples
    --------
    >>> quantifier = NetworkQuantifier(dim=128).fit(adjacency, y)  # doctest: +SKIP
    >>> quantifier.quantify([[0, 1, 2], [7, 8]])  # doctest: +SKIP
    """

    method: str = "xnq+"
    quantifier: str = "auto"
    labels_drawn: str = "unknown"
    dim: int = 256
    supersteps: int | str = "auto"
    unlabelled: Any = None
    settings: Mapping[str, Any] | None = None
    random_state: int = 0

    def fit(self, graph: Any, y: Any = None) -> NetworkQuantifier:
        """Learn from a graph and labels.

        Parameters
        ----------
        graph
            An adjacency matrix, shape (N, N), dense or sparse; a pair (features,
            adjacency matrix); or a networkx or PyTorch Geometric graph.
        y
            One label a node, in the order of the nodes. None: the graph's own.

        Raises
        ------
        InputError, SettingsError
            When graph, labels or settings cannot be used; both are a `ValueError`.
        """
        features, matrix = graph if isinstance(graph, tuple) else (None, graph)
        if is_matrix(matrix):
            matrix = self._checked(matrix, y=None if y is None else UNCHECKED)
            self._digest = _digest(matrix)
        labels = plain(y)
        if y is not None and self.unlabelled is not None:
            labels = np.where(np.asarray(labels) == self.unlabelled, None, labels)
        values = {name: getattr(self, argument) for name, argument in SETTINGS.items()}
        values |= self.settings or {}
        columns = settings_of(values).columns
        tables = tables_of(matrix, None, None, labels, features, columns)
        ids = tables.nodes[columns.node_id]
        everybody = {columns.community: pa.repeat(0, len(ids)), columns.member: ids}
        tables = replace(tables, memberships=pa.table(everybody))
        self.result_ = run_tables(tables, values)
        self._ids, self._columns = ids.combine_chunks(), columns
        self.classes_ = np.array(self.result_.classes)
        return self

    def quantify(self, communities: Any) -> Floats:
        """Estimate the share of each class in communities.

        Parameters
        ----------
        communities
            As `memberships` of `estimate_prevalence`.

        Returns
        -------
        ndarray of shape (S, C)
            A row for each community, in their order; NaN where there is no estimate.
        """
        names, result = self._estimate(communities)
        table = result.prevalence
        known = table["community"].unique()
        shares: Floats = table["prevalence"].to_numpy().reshape(len(known), -1)
        if names is None:
            return shares
        rows = pc.index_in(pa.array(names).cast(known.type), known)
        found = np.full((len(names), shares.shape[1]), np.nan)
        found[rows.is_valid()] = shares[rows.drop_null()]
        return found

    def estimate(self, communities: Any) -> PrevalenceResult:
        """As `quantify`, with intervals, anomalies and a report page."""
        return self._estimate(communities)[1]

    def predict_proba(self, graph: Any = None) -> Floats:
        """Class probabilities of the nodes of `fit`.

        Parameters
        ----------
        graph
            None or the adjacency matrix of `fit`: all nodes, in their order. Else the
            ids of some nodes.

        Returns
        -------
        ndarray of shape (N, C)
        """
        check_is_fitted(self)
        table = self.result_.posteriors
        wanted = self._ids
        if is_matrix(graph):
            if _digest(self._checked(graph, reset=False)) != self._digest:
                raise ValueError(
                    "predict_proba is for the nodes of the graph of fit: leave the "
                    "graph out, or fit again with this one"
                )
        elif graph is not None:
            wanted = pa.array(np.asarray(plain(graph)))
            if pa.types.is_boolean(wanted.type):
                raise ValueError("predict_proba takes node ids, not a mask")
        rows = pc.index_in(wanted.cast(table["node_id"].type), table["node_id"])
        if rows.null_count:
            raise ValueError("predict_proba names a node that is not in the graph")
        chosen = table.take(rows)
        columns = [chosen[name].to_numpy() for name in table.column_names[1:-1]]
        return np.column_stack(columns).astype(np.float64)

    def _estimate(self, communities: Any) -> tuple[list[Any] | None, PrevalenceResult]:
        """Names of the communities, None for those of a table, and their estimates."""
        check_is_fitted(self)
        with temporary_folder() as folder:
            names, table = members_of(communities, self._ids, self._columns)
            memberships = written(table, Path(folder, "memberships.parquet"))
            request = Request.of(self.result_.run, f"{folder}/run", memberships)
            requantify(request)
            return names, PrevalenceResult(request.out, folder)

    def _checked(self, matrix: Any, **more: Any) -> Any:
        """An adjacency matrix of finite numbers that are not negative."""
        return validate_data(
            self,
            matrix,
            accept_sparse="csr",
            ensure_min_samples=2,
            ensure_non_negative=True,
            **more,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = True
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        tags.target_tags.required = True
        return tags


def _digest(matrix: Any) -> list[int]:
    """Checksums of the entries of a matrix, dense or sparse."""
    entries = sparse.csr_array(matrix, dtype=np.float64)
    entries.sum_duplicates()
    parts = entries.indptr.astype(np.int64), entries.indices, entries.data
    return [crc32(part.data) for part in parts]
