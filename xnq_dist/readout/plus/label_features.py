"""Label features of xnq+: labels and posteriors around a node, in every variant.

Labels are counted by fold, and a variant's counts are a sum over its visible folds: so
features of a variant cannot depend on a hidden label, neither through a self-loop nor
through a walk that returns. Posteriors are those of a variant's first-stage models,
replaced by labels where these are visible; that of the first class follows from the
others and is left out. Both are sums over the in-neighbours, computed together by halo
exchange.

Every node has F float32 features (`feature_count`) with each of the K folds hidden;
labelled rows that models are fitted to have them with their own fold hidden, too. The
scores of another model (`columns.scores`) follow, the same in every variant. They are
in files, one per partition, so no process holds all of them. Several cross-fits
have columns next to each other, and share one pass over the embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Floats32, Ints, Ints32
from xnq_dist.core.store import Attempt, FileRecord, Stage
from xnq_dist.core.waiting import gather
from xnq_dist.readout.plus.first_stage import FirstStage
from xnq_dist.readout.plus.variants import Variants
from xnq_dist.readout.rows import FEATURES, Part
from xnq_dist.readout.tasks import watch
from xnq_dist.readout.work import ReadoutWork
from xnq_dist.reservoir.propagation import propagate

__all__ = [
    "HOPS",
    "Around",
    "FirstFit",
    "feature_count",
    "fits_at_once",
    "label_counts",
    "label_features",
    "read_each",
    "spread_features",
]

HOPS = 2
"""Steps from a node within which labels are counted, and posteriors averaged."""
SMOOTHING = 10.0
"""Pseudo-counts of the prior of class shares among labelled neighbours."""
BLOCK = 1 << 15
"""Rows whose means and features are computed at a time."""


@dataclass(frozen=True, eq=False)
class FirstFit:
    """First-stage models of every variant, and the labels that they were fitted to."""

    attempt: Attempt
    """Writes its files."""
    labels: tuple[FileRecord, ...]
    """Class codes of each partition's nodes, -1 for unlabelled or hidden, their folds,
    and whether models are fitted to them."""
    models: FileRecord
    """The arrays of `FirstStage`."""
    priors: Floats
    """Class shares of the labels visible to each variant, shape (V, C)."""
    variants: Variants

    @property
    def where(self) -> Stage:
        """The stage that its files are read from."""
        return Stage(self.attempt.folder, "readout")

    @property
    def width(self) -> int:
        """Columns of the label counts, of posteriors, and of ones."""
        return self._counts + self.priors[:, 1:].size + 1

    @property
    def _counts(self) -> int:
        return self.variants.folds * int(self.priors.shape[1]) + 1

    def split(self, values: Floats32) -> tuple[Floats32, Floats32]:
        """Views of the label counts, and of posteriors with ones."""
        return values[:, : self._counts], values[:, self._counts :]

    def by_variant(self, posteriors: Floats32) -> Floats32:
        """View of posteriors with ones by variant, shape (n, V, C - 1)."""
        variants, classes = self.priors.shape
        return posteriors[:, :-1].reshape(len(posteriors), variants, classes - 1)


def label_counts(
    labels: Ints32, folds: Ints32, n_folds: int, n_classes: int
) -> Floats32:
    """Indicators of labels by fold and class, and a column of ones to count edges.

    Labels are class codes or -1. The result is float32, shape (n, K C + 1).
    """
    hot = np.zeros((len(labels), n_folds, n_classes), np.float32)
    known = np.flatnonzero(labels >= 0)
    hot[known, folds[known], labels[known]] = 1.0
    ones = np.ones((len(hot), 1), np.float32)
    return np.concatenate([hot.reshape(len(hot), -1), ones], axis=1)


@dataclass(frozen=True, eq=False)
class Around:
    """Rounds of sums over neighbours, with the columns of all fits."""

    fits: tuple[FirstFit, ...]
    parts: tuple[Part, ...]

    def start(self, number: int) -> Floats32:
        """Return one partition's values, shape (n_owned, columns of all fits).

        Label indicators, and a label where it is visible, else the mean posterior.
        """
        ids = self.parts[number].read_nodes()["node_id"]
        out = np.empty((len(ids), sum(fit.width for fit in self.fits)), np.float32)
        models = [
            FirstStage.from_arrays(fit.where.read_arrays(fit.models))
            for fit in self.fits
        ]
        each = [fit.split(x) for fit, x in zip(self.fits, self._of(out), strict=True)]

        def score(rows: slice, x: NDArray[Any]) -> None:
            for first, (_, posteriors) in zip(models, each, strict=True):
                means = np.exp(first.scores(x)[..., 1:]).mean(axis=2)
                posteriors[rows, :-1] = means.reshape(len(x), -1)
                posteriors[rows, -1] = 1.0

        for _ in self.parts[number].over_states(ids, score):
            pass
        for fit, (counts, posteriors) in zip(self.fits, each, strict=True):
            arrays = fit.where.read_arrays(fit.labels[number])
            labels, folds = arrays["labels"], arrays["folds"]
            classes = fit.priors.shape[1]
            counts[:] = label_counts(labels, folds, fit.variants.folds, classes)
            known = np.flatnonzero(labels >= 0)
            seen = fit.variants.visible()[:, folds[known]].T[:, :, None]
            hot = np.eye(classes, dtype=np.float32)[labels[known], None]
            values = fit.by_variant(posteriors)
            values[known] = np.where(seen, hot[..., 1:], values[known])
        return out

    def step(
        self, number: int, turn: int, values: Floats32, sums: Floats32
    ) -> Floats32:
        """Return the values after one round, in place of the sums.

        Label counts one hop further away, and means of the neighbours' posteriors,
        weighted, with one pseudo-neighbour at the prior.
        """
        for fit, of_fit in zip(self.fits, self._of(sums), strict=True):
            _, posteriors = fit.split(of_fit)
            for first in range(0, len(sums), BLOCK):
                block = posteriors[first : first + BLOCK]
                total = fit.by_variant(block)
                total += fit.priors[:, 1:].astype(np.float32)
                total /= block[:, -1:, None] + 1
                block[:, -1] = 1.0
        return sums

    def _of(self, values: Floats32) -> list[Floats32]:
        """Views of the columns of each fit."""
        return np.hsplit(values, len(self.fits))


def fits_at_once(columns: int, units: int) -> int:
    """Number of cross-fits that share rounds, each with `columns` columns.

    Two, if they need no more memory than the states did, of `units` at a time.
    """
    return 2 if 2 * columns <= units else 1


def spread_features(
    work: ReadoutWork, fits: Sequence[FirstFit], parts: Sequence[Part]
) -> list[tuple[FileRecord, ...]]:
    """Compute the label features of every fit and partition from sums over neighbours.

    Features of all rows are written for the first fit, else only those of fitted rows.
    """
    client, attempt, turns = work.client, work.attempt, range(1, HOPS + 1)
    size = fits_at_once(fits[0].width, work.source.embedded.facts["units_at_once"])
    files: list[list[FileRecord]] = [[] for _ in fits]
    for first in range(0, len(fits), size):
        around = Around(tuple(fits[first : first + size]), tuple(parts))
        rounds = propagate(
            client,
            work.source.graph,
            work.source.manifest,
            around.start,
            around.step,
            HOPS,
            attempt,
            "labels around",
            turns,
            backend=work.settings.backend,
            progress=work.progress,
        )
        futures = [
            client.submit(
                _write_features,
                around,
                number,
                [rounds[turn][number] for turn in turns],
                first == 0,
                pure=False,
            )
            for number in range(len(parts))
        ]
        watch(client, futures, "label features", work.progress)
        for records in gather(client, futures):
            for of_fit, record in zip(files[first:], records, strict=False):
                of_fit.append(record)
        for records in rounds.values():
            for record in records:
                attempt.folder.delete(record.name)
    return [tuple(of_fit) for of_fit in files]


def _write_features(
    around: Around,
    number: int,
    rounds: Sequence[FileRecord],
    complete: bool,
) -> list[FileRecord]:
    """Write features of fitted rows in K variants; of all, their fold hidden, once."""
    fits = around.fits
    values = [fits[0].where.read_arrays(record)["values"] for record in rounds]
    scores = around.parts[number].read_scores(len(values[0]))
    written: list[FileRecord] = []
    for fit, *of_fit in zip(
        fits, *(np.hsplit(each, len(fits)) for each in values), strict=True
    ):
        known = fit.where.read_arrays(fit.labels[number])
        folds, rows = known["folds"], np.flatnonzero(known["fitted"])
        features = partial(label_features, priors=fit.priors, variants=fit.variants)
        arrays, count = {}, fit.variants.folds
        if complete and not written:
            hops, means = zip(*map(fit.split, of_fit), strict=True)
            every = [
                features(hops, means, chosen=np.full(len(folds), fold))
                for fold in range(count)
            ]
            arrays["each"] = _with_scores(every, scores)
        hops, means = zip(*(fit.split(each[rows]) for each in of_fit), strict=True)
        places = fit.variants.places()[folds[rows]]
        by_fold = [
            features(hops, means, chosen=places[:, fold]) for fold in range(count)
        ]
        arrays["fitted"] = _with_scores(by_fold, scores[rows])
        written.append(fit.attempt.write_arrays(f"{FEATURES}{number:05d}", **arrays))
    return written


def _with_scores(by_fold: Sequence[Floats32], scores: Floats32) -> Floats32:
    """Features with each fold hidden, and the same scores, shape (n, K, F)."""
    count = by_fold[0].shape[1]
    shape = len(scores), len(by_fold), count + scores.shape[1]
    features = np.empty(shape, np.float32)
    for fold, values in enumerate(by_fold):
        features[:, fold, :count] = values
    features[:, :, count:] = scores[:, None]
    return features


def read_each(where: Stage, record: FileRecord) -> Floats32:
    """Read label features of a partition's rows with each fold hidden, (n, K, F)."""
    features: Floats32 = where.read_arrays(record)["each"]
    return features


def feature_count(n_classes: int) -> int:
    """Number of features: shares, count, mean posteriors for each hop; the degree."""
    return HOPS * (2 * (n_classes - 1) + 1) + 1


def label_features(
    hops: Sequence[Floats32],
    means: Sequence[Floats32],
    priors: Floats,
    chosen: Ints,
    variants: Variants,
    smoothing: float = SMOOTHING,
) -> Floats32:
    """Label features of rows, each in its chosen variant, shape (n, `feature_count`).

    For each hop: the share of each class but the first among the labels that walks of
    that length reach, smoothed to the prior with `smoothing` pseudo-labels, and
    log(1 + labels reached), with counts divided by the share of visible folds; the
    neighbours' mean probabilities at each hop; log(1 + degree). `hops` and `means` are
    those of `FirstFit.split` after rounds 1 and 2.
    """
    features = np.empty((len(chosen), feature_count(priors.shape[1])), np.float32)
    # In blocks, because float64 intermediates take several times the memory.
    for start in range(0, len(chosen), BLOCK):
        block = slice(start, start + BLOCK)
        features[block] = _features_of_rows(
            [values[block] for values in hops],
            [values[block] for values in means],
            priors,
            chosen[block],
            variants,
            smoothing,
        )
    return features


def _features_of_rows(
    hops: Sequence[Floats32],
    means: Sequence[Floats32],
    priors: Floats,
    chosen: Ints,
    variants: Variants,
    smoothing: float,
) -> Floats:
    rows, classes = len(chosen), priors.shape[1]
    visible, prior = variants.visible()[chosen], priors[chosen]
    visible_share = visible.mean(axis=1)[:, None]
    columns = []
    for values in hops:
        by_fold = values[:, :-1].reshape(rows, variants.folds, classes)
        # Visible folds are added; subtracting hidden ones from a total would leave a
        # rounding residue of the node's own label, a leak that trees can exploit.
        counts = np.zeros((rows, classes))
        for fold in range(variants.folds):
            counts += np.where(visible[:, fold, None], by_fold[:, fold], 0.0)
        counts /= visible_share
        reached = counts.sum(axis=1, keepdims=True)
        share = (counts + smoothing * prior) / (reached + smoothing)
        columns += [share[:, 1:], np.log1p(reached)]
    for values in means:
        by_variant = values[:, :-1].reshape(rows, len(variants), classes - 1)
        columns.append(by_variant[np.arange(rows), chosen])
    columns.append(np.log1p(hops[0][:, -1:].astype(np.float64)))
    return np.concatenate(columns, axis=1)
