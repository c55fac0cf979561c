"""Posteriors, communities and plain implementations that the tests share."""

from __future__ import annotations

import warnings
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

from xnq_dist.quantify.classic.counts import with_votes
from xnq_dist.quantify.interface import (
    Communities,
    NodeTable,
    Reference,
)


def field_library() -> ModuleType:
    """QuaPy's aggregative methods, or a skip."""
    with warnings.catch_warnings():
        # Its own source has such sequences; Python says so when it first compiles it.
        warnings.filterwarnings("ignore", "invalid escape sequence", DeprecationWarning)
        return pytest.importorskip("quapy.method.aggregative")


def draw_posteriors(
    n: int, prior: NDArray[np.float64], sharpness: float, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Calibrated posteriors of n nodes drawn at the prior, and their classes."""
    rng = np.random.default_rng(seed)
    classes = rng.choice(len(prior), n, p=prior).astype(np.int32)
    evidence = rng.standard_normal((n, len(prior)))
    evidence[np.arange(n), classes] += sharpness
    logits = sharpness * evidence + np.log(np.maximum(prior, 1e-300))
    logits -= logits.max(axis=1, keepdims=True)
    shares = np.exp(logits)
    return (shares / shares.sum(axis=1, keepdims=True)).astype(np.float32), classes


def make_nodes(
    posteriors: NDArray[np.floating],
    labels: NDArray[np.integer] | None = None,
    prior: list[float] | None = None,
) -> NodeTable:
    """A node table without a reference, with neighbours made up.

    Nodes have no label unless labels are given; the prior is uniform unless given.
    """
    n, n_classes = posteriors.shape
    codes = np.full(n, -1) if labels is None else labels
    return NodeTable(
        neighbours=make_neighbours(posteriors),
        posteriors=np.ascontiguousarray(posteriors, np.float32),
        labels=codes.astype(np.int32),
        out_of_fold=codes >= 0,
        classes=tuple(f"c{y}" for y in range(n_classes)),
        prior=np.asarray(prior or np.full(n_classes, 1 / n_classes), np.float64),
        reference=Reference(
            np.empty((0, n_classes), np.float32), np.empty(0, np.int32)
        ),
    )


def make_neighbours(posteriors: NDArray[np.floating]) -> NDArray[np.float64]:
    """Neighbours that a node's own row decides: two like itself, one like the next."""
    around = [posteriors, posteriors, np.roll(posteriors, 1, axis=1)]
    return sum(with_votes(np.nan_to_num(one)).astype(np.float64) for one in around)


def make_communities(*members: list[int] | NDArray[np.integer]) -> Communities:
    """Communities of the given members."""
    offsets = np.cumsum([0, *(len(m) for m in members)]).astype(np.int64)
    flat = [np.asarray(m, np.int64) for m in members]
    return Communities(offsets, np.concatenate([np.empty(0, np.int64), *flat]))


def members_of(batch: Communities, s: int) -> NDArray[np.integer]:
    """Members of one community."""
    return batch.members[batch.offsets[s] : batch.offsets[s + 1]]


def with_reference(
    nodes: NodeTable, posteriors: NDArray[np.floating], classes: NDArray[np.integer]
) -> NodeTable:
    """The table with a reference of other, labelled nodes, and their class shares."""
    codes = classes.astype(np.int32)
    reference = Reference(
        np.asarray(posteriors, np.float32),
        codes,
        # Their own nodes are in no table of the tests.
        rows=np.zeros(len(codes), np.int64),
        neighbours=make_neighbours(posteriors),
    )
    shares = np.bincount(codes, minlength=posteriors.shape[1]) / len(codes)
    return replace(nodes, prior=shares, reference=reference)


def with_own_reference(nodes: NodeTable) -> NodeTable:
    """The table with a reference of its labelled nodes, and their class shares."""
    rows = np.flatnonzero(nodes.labels >= 0)
    labels, own = nodes.labels[rows], nodes.posteriors[rows]
    shares = np.bincount(labels, minlength=own.shape[1]) / len(rows)
    return replace(nodes, prior=shares, reference=Reference(own, labels, rows))


def their_quantifier(
    made: type, posteriors: NDArray[np.floating], labels: NDArray[np.integer], **options
):
    """A method of QuaPy, with its aggregation fitted to these posteriors."""
    from sklearn import base

    class Fitted(base.ClassifierMixin, base.BaseEstimator):
        """A fitted classifier with given predictions."""

        def __init__(self, n_classes: int) -> None:
            self.n_classes = n_classes
            self.classes_ = np.arange(n_classes)

        def fit(self, data, labels):
            return self

        def predict_proba(self, data):
            return data

    classifier = Fitted(posteriors.shape[1])
    with warnings.catch_warnings():
        # It says that folds are of no use to a fitted classifier.
        warnings.filterwarnings("ignore", "val_split")
        found = made(classifier, fit_classifier=False, **options)
    found.aggregation_fit(np.asarray(posteriors, np.float64), labels)
    return found


def slow_sld(
    posteriors: NDArray[np.floating],
    prior: NDArray[np.float64],
    tolerance: float = 1e-4,
    max_iterations: int = 1000,
) -> tuple[NDArray[np.float64], bool]:
    """EM by its definition, for one community with positive rows."""
    original = np.asarray(posteriors, np.float64)
    if (prior == 0).any():
        prior = (prior + 1e-4) / (prior + 1e-4).sum()
    q = prior
    for step in range(1, max_iterations + 1):
        shifted = original * (q / prior)
        shifted /= shifted.sum(axis=1, keepdims=True)
        before, q = q, shifted.mean(axis=0)
        if step >= 12 and np.abs(q - before).mean() < tolerance:
            return q, True
    return q, False
