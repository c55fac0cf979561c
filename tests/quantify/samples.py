"""Posteriors, communities and slow, obvious answers that the tests share."""

from __future__ import annotations

import warnings
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

from xnq_dist.quantify.interface import Communities, NodeTable, Reference


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
    posteriors: NDArray[np.floating], labels: NDArray[np.integer] | None = None
) -> NodeTable:
    """A node table, unlabelled unless labels are given."""
    n = len(posteriors)
    codes = np.full(n, -1) if labels is None else labels
    return NodeTable(
        posteriors=np.ascontiguousarray(posteriors, np.float32),
        labels=codes.astype(np.int32),
        out_of_fold=codes >= 0,
        classes=tuple(f"c{y}" for y in range(posteriors.shape[1])),
    )


def make_communities(*members: list[int] | NDArray[np.integer]) -> Communities:
    """Communities of the given members."""
    offsets = np.cumsum([0, *(len(m) for m in members)]).astype(np.int64)
    flat = [np.asarray(m, np.int64) for m in members]
    return Communities(offsets, np.concatenate([np.empty(0, np.int64), *flat]))


def reference_of(prior: NDArray[np.float64] | list[float]) -> Reference:
    """A reference without labelled nodes."""
    return Reference(np.asarray(prior, np.float64))


def slow_sld(
    posteriors: NDArray[np.floating],
    prior: NDArray[np.float64],
    tolerance: float = 1e-4,
    max_iterations: int = 1000,
) -> tuple[NDArray[np.float64], int, bool]:
    """EM as the definition says it, for one community with rows above 0."""
    original = np.asarray(posteriors, np.float64)
    if (prior == 0).any():
        prior = (prior + 1e-4) / (prior + 1e-4).sum()
    q = prior
    for step in range(1, max_iterations + 1):
        shifted = original * (q / prior)
        shifted /= shifted.sum(axis=1, keepdims=True)
        before, q = q, shifted.mean(axis=0)
        if step >= 12 and np.abs(q - before).mean() < tolerance:
            return q, step, True
    return q, max_iterations, False
