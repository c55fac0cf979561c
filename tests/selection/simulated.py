"""Simulated scores, classes and groups of nodes, with labels chosen by a design."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from xnq_dist.selection.scored_rows import ScoredRows, bounded, log_rates

FOLDS = 5


@dataclass(frozen=True, eq=False)
class World:
    """Nodes of a population, their classes and scores."""

    posteriors: np.ndarray
    """Calibrated in the population, shape (N, C)."""
    classes: np.ndarray
    groups: np.ndarray
    degree: np.ndarray
    rng: np.random.Generator


def draw_world(seed: int, n: int = 2000, n_classes: int = 2, sharp: float = 1.5):
    """Posteriors differ by node and, in level, by group."""
    rng = np.random.default_rng(seed)
    groups = np.sort(rng.integers(0, 25, n)).astype(np.int32)
    level = rng.normal(0, 0.5, (25, n_classes))[groups]
    prior = np.linspace(0.8, -0.8, n_classes)
    posteriors = softmax(prior + level + rng.normal(0, sharp, (n, n_classes)), axis=1)
    u = rng.random((n, 1))
    classes = (u > np.cumsum(posteriors, axis=1)[:, :-1]).sum(axis=1)
    degree = np.ceil(rng.lognormal(2, 1, n))
    return World(posteriors, classes.astype(np.int32), groups, degree, rng)


def label(world: World, odds: np.ndarray, rate: float = 0.2) -> np.ndarray:
    """Labels by the odds of each node, so many in all, -1 elsewhere."""
    chance = np.log(odds)
    low, high = -30.0, 30.0
    for _ in range(60):
        middle = (low + high) / 2
        share = (1 / (1 + np.exp(-chance - middle))).mean()
        low, high = (middle, high) if share < rate else (low, middle)
    known = world.rng.random(len(odds)) < 1 / (1 + np.exp(-chance - middle))
    return np.where(known, world.classes, -1).astype(np.int32)


def rows_of(world: World, labels: np.ndarray) -> ScoredRows:
    """Scores as a readout gives them: calibrated to the labelled nodes."""
    n_classes = world.posteriors.shape[1]
    # What a readout learns is P(y | x, labelled); place has no effect on it.
    known = labels >= 0
    by_class = np.bincount(labels[known], minlength=n_classes) + 0.5
    by_class /= np.bincount(world.classes, minlength=n_classes) + 0.5
    seen = world.posteriors * by_class
    folds = world.rng.integers(0, FOLDS, len(labels)).astype(np.int32)
    size = np.bincount(world.groups)
    rates = np.empty((len(labels), 1))
    for fold in range(FOLDS):
        own = folds == fold
        other = np.bincount(world.groups, known & ~own)
        reached = (other / size)[world.groups] * world.degree
        rates[:, 0][own] = log_rates(reached, world.degree, known.mean(), 0.8)[own]
    prior = np.bincount(labels[known], minlength=n_classes) / known.sum()
    posteriors = bounded(seen, prior)
    return ScoredRows(posteriors, labels, folds, (world.groups,), world.degree, rates)


def even_rows(posteriors, labels, groups) -> ScoredRows:
    """Nodes of one fold and degree, which differ by their groups alone."""
    n, labels = len(labels), np.asarray(labels, np.int32)
    folds = np.zeros(n, np.int32)
    return ScoredRows(posteriors, labels, folds, (groups,), folds, np.zeros((n, 1)))


def sizes(rows: ScoredRows) -> tuple[int, int]:
    """Labelled and unlabelled nodes."""
    known = int(rows.labelled.sum())
    return known, len(rows.labels) - known
