"""The paper's tables with our results, next to the published ones.

A method's quantifier is chosen by validation, as are its draw and calibration: the
choice is made from validation rows only, and the test rows are looked up afterwards.

``paper_figures.csv`` has the published test errors: means and standard deviations over
five folds; the paper does not state whether it divides by n or n - 1.
``paper_comparison.csv`` has the probabilities of its Bayesian table for AE.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from xnq_dist.core.records import QUANTIFIERS
from xnq_dist.evaluation.keep import EMPTY, RenderedTable

__all__ = ["COMPARISON", "FIGURES", "Tested", "compare", "fold_errors", "paper_tables"]

DIGITS = {"ae": 4, "rae": 3}
"""Number of decimals of our results, by metric."""
REFERENCE = "xnq"
"""The method that others are compared with."""
SOFT = ("sld", "cc", "acc", "pcc", "pacc", "hdy", "dys")
ALLOWED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("xnq", "xnq+"), ("sld",)),
    **dict.fromkeys(("wvrn", "lr", "gcn", "gat", "gin"), SOFT),
    **dict.fromkeys(("cdq", "enq"), ("cc", "acc")),
}
"""Quantifiers that a method may choose in the paper; other methods may choose any."""
NSAMPLES, SEED = 10_000, 0
"""Draws from the posterior of a Bayesian comparison: probabilities have a standard
error of at most .005."""
NOTE = (
    "Mean ± sample standard deviation (ddof = 1) over folds; best in bold. In "
    "brackets: the paper's values over five folds. Folds: number on each data set."
)


def _published(file: str) -> list[Any]:
    table = pacsv.read_csv(Path(__file__).with_name(file))
    return [row.values() for row in table.to_pylist()]


FIGURES = {
    (metric, row, dataset): (mean, sd)
    for metric, row, dataset, mean, sd in _published("paper_figures.csv")
}
"""Published mean error and standard deviation by metric, row and data set; a row is a
method, or a quantifier on XNQ's embeddings."""
COMPARISON = {
    (kind, row): probabilities
    for kind, row, *probabilities in _published("paper_comparison.csv")
}
"""Published probabilities that XNQ's AE is worse, equal or better."""
METHODS = [*dict.fromkeys(method for _, method, _ in FIGURES)]
DATASETS = [*dict.fromkeys(dataset for *_, dataset in FIGURES)]
"""In the order of the paper."""

Errors = dict[str, dict[str, dict[str, float]]]
"""Errors of one fold by quantifier, split and metric."""


@dataclass(frozen=True)
class Tested:
    """Test errors in one fold, with the quantifier that validation chose."""

    dataset: str
    column: str
    """The data set, with the share of its labels unless all are kept."""
    method: str
    """For a quantifier of XNQ other than the chosen one, its name."""
    quantifier: str
    errors: Mapping[str, float]
    """Test error by metric."""


def paper_tables(results: pa.Table, estimates: pa.Table) -> list[RenderedTable]:
    """Every table that the results allow; the same results give the same tables.

    Parameters
    ----------
    results, estimates
        Tables with schemas of these names; several data sets may be concatenated.
    """
    tested = fold_errors(results)
    pairs = estimates.group_by(["dataset", "class"]).aggregate([])
    classes = Counter(pairs["dataset"].to_pylist())
    kinds: dict[str, list[Tested]] = defaultdict(list)
    for one in tested:
        kinds["multi-class" if classes[one.dataset] > 2 else "binary"].append(one)
    made = [
        _errors(some, kind, metric) for kind, some in kinds.items() for metric in DIGITS
    ]
    return [*made, _comparison(kinds)]


def _ordered(names: Iterable[str], first: Sequence[str]) -> list[str]:
    """Distinct names: those in `first` in its order, then the others by name."""
    distinct = set(names)
    known = [name for name in first if name in distinct]
    return known + sorted(distinct.difference(known))


def fold_errors(results: pa.Table) -> list[Tested]:
    """Choose the quantifier by validation, per method, fold and label share.

    The quantifier with the lowest validation AE is chosen from those that the paper
    allows the method (`ALLOWED`), or from all if none of these was evaluated. Ties go
    to the first in the order of `ALLOWED`. Within a quantifier, rows marked
    ``selected`` have the draw and calibration that validation chose.
    """
    folds: dict[tuple[Any, ...], Errors] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(dict))
    )
    for row in results.filter(results["selected"]).to_pylist():
        fold = tuple(row[n] for n in ("dataset", "method", "label_share", "fold"))
        folds[fold][row["quantifier"]][row["split"]][row["metric"]] = row["value"]
    tested = []
    for (dataset, method, share, _), errors in sorted(folds.items()):
        chosen = _choice(method, errors)
        others = [name for name in errors if method == REFERENCE and name != chosen]
        for name in [chosen, *others]:
            named = method if name == chosen else name
            column = dataset
            if share < 1:
                column += f", {100 * share:.3g} % of the labels"
            tested.append(Tested(dataset, column, named, name, errors[name]["test"]))
    return tested


def _choice(method: str, errors: Errors) -> str:
    candidates = [name for name in ALLOWED.get(method, ()) if name in errors]
    candidates = candidates or [name for name in QUANTIFIERS if name in errors]
    return min(candidates, key=lambda name: errors[name]["validation"]["ae"])


def _values(
    tested: Iterable[Tested], metric: str
) -> dict[tuple[str, str], list[float]]:
    """Test errors of all folds by method and column."""
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for one in tested:
        if metric in one.errors:
            values[one.method, one.column].append(one.errors[metric])
    return values


def _spread(values: Sequence[float], digits: int) -> str:
    """``mean ± sd`` as text; the mean only for one fold."""
    if not values:
        return EMPTY
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1):.{digits}f}"


def _errors(tested: Sequence[Tested], kind: str, metric: str) -> RenderedTable:
    """Errors by method and data set."""
    digits, values = DIGITS[metric], _values(tested, metric)
    datasets = _ordered((one.column for one in tested), DATASETS)
    means = {key: round(float(np.mean(each)), digits) for key, each in values.items()}
    best = {
        name: min((mean for (_, of), mean in means.items() if of == name), default=None)
        for name in datasets
    }
    # Rows of the paper are shown even if they were not evaluated here.
    printed = [row for of, row, name in FIGURES if of == metric and name in datasets]
    rows: dict[tuple[str, str], list[str]] = {}
    for method in _ordered([*printed, *(name for name, _ in values)], METHODS):
        texts = []
        for name in datasets:
            text = _spread(values[method, name], digits)
            if means.get((method, name), np.nan) == best[name]:
                text = f"**{text}**"
            paper = FIGURES.get((metric, method, name))
            texts.append(f"{text} ({paper[0]:.3f} ± {paper[1]:.3f})" if paper else text)
        folds = {len(values[method, name]) for name in datasets} - {0}
        used = Counter(one.quantifier for one in tested if one.method == method)
        counts = ", ".join(f"{name} {count}" for name, count in used.most_common())
        group = f"{REFERENCE} with another quantifier" if method in QUANTIFIERS else ""
        texts += [counts or EMPTY, ", ".join(map(str, sorted(folds))) or EMPTY]
        rows[group, method] = texts
    return RenderedTable(
        f"{metric}-{kind}",
        f"Test {metric.upper()} on {kind} data sets",
        ("method", *datasets, "quantifiers (folds)", "folds"),
        dict(sorted(rows.items(), key=lambda item: item[0][0])),
        NOTE,
    )


def compare(
    reference: Sequence[float], other: Sequence[float], nsamples: int
) -> tuple[float, list[float]]:
    """Bayesian signed-rank test of two methods' mean errors, with a fixed seed.

    Parameters
    ----------
    reference, other
        Mean errors on the same data sets.
    nsamples
        Number of draws from the posterior.

    Returns
    -------
    The half-width of the region of practical equivalence, which is the sample standard
    deviation of `reference`, and the probabilities that the reference is worse, equal
    or better.

    References
    ----------
    A. Benavoli, G. Corani, J. Demsar, M. Zaffalon, "Time for a change: a tutorial for
    comparing multiple classifiers through Bayesian analysis", JMLR 2017.
    """
    import baycomp

    rope = float(np.std(reference, ddof=1))
    x, y = np.array(reference), np.array(other)
    # baycomp's left probability is "the second has lower values"; these are errors, so
    # the first is worse.
    result = baycomp.two_on_multiple(
        x, y, rope=rope, nsamples=nsamples, random_state=SEED
    )
    if len(result) == 2:  # baycomp returns no probability of equality if rope is 0
        result = (result[0], 0.0, result[1])
    return rope, [float(value) for value in result]


def _comparison(kinds: Mapping[str, Sequence[Tested]]) -> RenderedTable:
    """Compare XNQ with every method with which it shares two data sets of a kind.

    Results with fewer labels are left out. Without baycomp, the table has a note
    instead of rows.
    """
    note = (
        f"Probability that {REFERENCE}'s error is higher, equal (within the rope) or "
        f"lower (Bayesian signed-rank test, {NSAMPLES:,} draws, fixed seed), for "
        "methods with results on two data sets or more. Rope: sample standard "
        "deviation (ddof = 1) of its means by data set. In brackets: the paper's "
        "values for AE."
    )
    if find_spec("baycomp") is None:
        note = (
            "The Bayesian comparison needs the package baycomp: "
            "pip install 'xnq-dist[evaluation]'."
        )
        kinds = {}
    elif len(kinds) > 1:
        kinds = {**kinds, "all": [one for some in kinds.values() for one in some]}
    rows = {}
    for kind, tested in kinds.items():
        complete = [one for one in tested if one.column == one.dataset]
        for metric in DIGITS:
            values = _values(complete, metric)
            means = {key: float(np.mean(each)) for key, each in values.items()}
            for method in _ordered((name for name, _ in means), METHODS):
                both = [
                    d for of, d in means if of == method and (REFERENCE, d) in means
                ]
                if method == REFERENCE or len(both) < 2:
                    continue
                ours, theirs = (
                    [means[m, d] for d in both] for m in (REFERENCE, method)
                )
                rope, found = compare(ours, theirs, NSAMPLES)
                texts = [f"{p:.3f}" for p in found]
                if metric == "ae" and (kind, method) in COMPARISON:
                    paper = COMPARISON[kind, method]
                    texts = [
                        f"{t} ({p:.3f})" for t, p in zip(texts, paper, strict=True)
                    ]
                group = f"{kind} data sets, {metric.upper()}"
                rows[group, method] = [str(len(both)), f"{rope:.4f}", *texts]
    against = f"{REFERENCE} against"
    return RenderedTable(
        "comparison",
        f"Bayesian comparison with {REFERENCE}",
        (against, "data sets", "rope", "p(worse)", "p(equal)", "p(better)"),
        rows,
        note,
    )
