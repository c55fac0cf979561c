"""The rivals: what fifty lines of scikit-learn estimate for every community.

A rival scores nodes with the better of logistic regression and gradient boosting, and
its estimate for a community is the mean score of the unlabelled members. `features`
knows the nodes' features. `boosting` also knows the features' means over the nodes at
one and two hops, the degree, and the classes of labelled neighbours.
`boosting_intercept` adds one random intercept per community, whose variance is learnt
from all communities of a kind that have labelled members.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, logit

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints, Ints32
from xnq_dist.core.random_bits import Purpose, stream
from xnq_dist.quantify.interface import Communities, Estimates
from xnq_dist.readout.calibration import PRIOR_ROWS, fit_calibration

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["RIVALS", "plain_features", "rival_estimates", "rival_scores"]

RIVALS = ("features", "boosting", "boosting_intercept")
"""Names of the rivals among the estimators of an evaluation on communities."""
MAX_WIDTH, WIDTH = 256, 64
FOLDS = 5
FLOOR = 1e-6
"""Minimum probability before taking the logarithm."""
STRENGTHS = (0.001, 0.03, 1.0)
"""Inverse L2 strengths of the logistic regressions."""
SPREADS = (0.02, 0.1, 0.25, 0.5, 1.0, 1.5, 2.5, 4.0)
"""Standard deviations from which that of the intercepts is chosen."""
STEPS = 30
"""Newton steps for the intercepts."""
Z = 1.96
"""Half the width of a 95 % interval in standard errors."""


def plain_features(
    features: Floats32, both: csr_array[Any] | None, hops: int = 2
) -> Floats32:
    """Features of every node, and what a rival with neighbours knows.

    More than `MAX_WIDTH` features are reduced to `WIDTH` singular vectors.

    Parameters
    ----------
    features
        Shape (N, F).
    both
        Neighbours in either direction, shape (N, N), whose means over the hops and the
        log degree are added; None: only features.
    """
    from sklearn.decomposition import TruncatedSVD

    if features.shape[1] > MAX_WIDTH:
        features = TruncatedSVD(WIDTH, random_state=0).fit_transform(features)
    columns: list[NDArray[Any]] = [features]
    if both is not None:
        degree = np.asarray(both.sum(axis=1), np.float64)[:, None]
        for _ in range(hops):
            columns.append(both @ columns[-1] / np.maximum(degree, 1))
        columns.append(np.log1p(degree))
    return np.hstack(columns).astype(np.float32)


def rival_scores(
    features: Floats32,
    labels: Ints32,
    n_classes: int,
    seed: int,
    adjacency: csr_array[Any] | None = None,
) -> Floats:
    """Log-probabilities of every node by the better classifier, shape (N, C).

    Every fold's models are fitted without its labels and do not know them as labels of
    neighbours. Labelled nodes are scored by their fold's models, others by the mean of
    all. The classifier with the lowest log-loss of the labelled nodes is used, after
    both are calibrated.

    Parameters
    ----------
    features
        Shape (N, F).
    labels
        Class codes, -1 if unknown, shape (N,); two nodes of each class or more, so
        that models know all classes.
    adjacency
        In-neighbours, shape (N, N), for a rival with neighbours; None: features only.
    """
    from sklearn.base import clone
    from threadpoolctl import threadpool_limits

    both = None
    if adjacency is not None:
        both = (adjacency + adjacency.T).tocsr()
        # With a loop, a node's own label would be among its neighbours' labels.
        both.setdiag(0)
    x, folds = plain_features(features, both), _folds(labels, seed)
    known, free = labels >= 0, labels < 0
    models = _classifiers(seed)
    logs = np.zeros((len(models), len(x), n_classes))
    for fold in range(FOLDS):
        shown = np.where(folds == fold, -1, labels)
        rows = x if both is None else np.hstack([x, _shares(both, shown, n_classes)])
        for at, model in enumerate(models):
            # One thread: on a busy machine OpenMP's threads wait for each other.
            with threadpool_limits(1):
                fitted = clone(model).fit(rows[shown >= 0], shown[shown >= 0])
                scores = fitted.predict_proba(rows).astype(np.float64)
            log = np.log(np.maximum(scores, FLOOR))
            logs[at, folds == fold] = log[folds == fold]
            logs[at, free] += log[free] / FOLDS
    calibrated = []
    for log in logs:
        fit = fit_calibration("bcts", log[known], labels[known], PRIOR_ROWS)
        calibrated.append(np.log(fit.apply(log).astype(np.float64)))
    return max(calibrated, key=lambda log: log[known, labels[known]].mean())


def _classifiers(seed: int) -> list[Any]:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    linear = [
        make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=1000))
        for C in STRENGTHS
    ]
    return [*linear, HistGradientBoostingClassifier(random_state=seed)]


def _folds(labels: Ints32, seed: int) -> Ints:
    """Fold of every labelled node, balanced by class; -1 for others."""
    rows = stream(seed, Purpose.LABELLED_FOLDS, 1).permutation(
        np.flatnonzero(labels >= 0)
    )
    folds = np.full(len(labels), -1)
    folds[rows[np.argsort(labels[rows], kind="stable")]] = np.arange(len(rows)) % FOLDS
    return folds


def _shares(both: csr_array[Any], shown: Ints32, n_classes: int) -> Floats32:
    """Class shares of labelled neighbours, and their number, shape (N, C + 1)."""
    one_hot = np.eye(n_classes)[shown] * (shown >= 0)[:, None]
    prior = one_hot.sum(axis=0) / one_hot.sum()
    counts = both @ one_hot
    number = counts.sum(axis=1, keepdims=True)
    shares = (counts + prior) / (number + 1)
    return np.hstack([shares, np.log1p(number)]).astype(np.float32)


def rival_estimates(
    sets: Communities,
    scores: Mapping[str, Floats],
    labels: Ints32,
) -> Iterator[tuple[str, Estimates]]:
    """Yield every rival's name and estimates for the unlabelled members.

    An estimate is the mean score, with a binomial interval.

    Parameters
    ----------
    scores
        Log-probabilities of the nodes by `features` and `boosting`, shape (N, C) each.
    labels
        Class codes, -1 if unknown, shape (N,).
    """
    free, labelled = sets.only(labels < 0), sets.only(labels >= 0)
    size = np.maximum(free.sizes, 1)[:, None]

    def means(values: Floats) -> Floats:
        """Means over the unlabelled members, whose values have shape (M, C)."""
        community = free.community
        sums = [np.bincount(community, column, len(free)) for column in values.T]
        return np.asarray(np.stack(sums, axis=1) / size)

    for name, logs in scores.items():
        mean = means(np.exp(logs)[free.members])
        yield name, _estimates(mean, mean * (1 - mean) / size)
    # A random intercept per community, one class against the rest.
    x = logit(np.clip(np.exp(scores[RIVALS[1]]), FLOOR, 1 - FLOOR))
    known, community = labels[labelled.members], labelled.community
    found = [
        _intercepts(column, known == code, community, len(sets))
        for code, column in enumerate(x[labelled.members].T)
    ]
    intercept, spread = np.stack(found, axis=-1)
    chance = expit(x[free.members] + intercept[free.community])
    mean, inner = means(chance), means(chance * (1 - chance))
    total = np.maximum(mean.sum(axis=1, keepdims=True), FLOOR)
    yield RIVALS[2], _estimates(mean / total, inner / size + inner**2 * spread)


def _estimates(mean: Floats, variance: Floats) -> Estimates:
    half = Z * np.sqrt(variance)
    done = np.ones(len(mean), np.bool_)
    return Estimates(mean, done, mean - half, mean + half)


def _intercepts(
    x: Floats,
    positive: Bools,
    community: Ints,
    count: int,
) -> tuple[Floats, Floats]:
    """Intercept of every community and its variance, shape (S,) each.

    The standard deviation with the highest marginal likelihood (Laplace) is used.
    """
    best, kept = -np.inf, (np.zeros(count), np.zeros(count))
    for sd in SPREADS:
        b = np.zeros(count)
        for _ in range(STEPS):
            chance = expit(x + b[community])
            slope = np.bincount(community, positive - chance, count) - b / sd**2
            curve = np.bincount(community, chance * (1 - chance), count) + sd**-2
            b += np.clip(slope / curve, -1, 1)
        logs = log_expit(np.where(positive, 1, -1) * (x + b[community]))
        fit = logs.sum() - (b @ b / sd**2 + np.log(curve * sd**2).sum()) / 2
        if fit > best:
            best, kept = float(fit), (b, 1 / curve)
    return kept
