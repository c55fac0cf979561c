"""Bayesian comparison of two methods over several data sets with baycomp."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from xnq_dist.core.errors import SettingsError
from xnq_dist.evaluation import paper_figures as published
from xnq_dist.evaluation.names import base, shown
from xnq_dist.evaluation.rendered_table import Cell, RenderedTable, RowGroup
from xnq_dist.evaluation.summary import GRAPH_LEVEL, REFERENCE, Summary, quantifiers_of

__all__ = ["NSAMPLES", "Comparison", "compare", "comparison_table"]

NSAMPLES = 10_000
"""Draws from the posterior: probabilities have a standard error of at most .005."""
SEED = 0

MISSING = (
    "The Bayesian comparison needs the package baycomp: "
    "pip install 'xnq-dist[evaluation]'."
)


class Comparison(NamedTuple):
    """Probabilities that the first of two methods is worse, equal or better."""

    worse: float
    equal: float
    better: float
    rope: float
    """Half-width of the region of practical equivalence."""
    datasets: int
    """Number of data sets that have results of both methods."""


def compare(
    reference: Mapping[str, float],
    other: Mapping[str, float],
    rope_from: Mapping[str, float] | None = None,
    nsamples: int = NSAMPLES,
) -> Comparison:
    """Bayesian signed-rank test of two methods' mean errors, with a fixed seed.

    Parameters
    ----------
    reference, other
        Mean error by data set; only data sets in both are used.
    rope_from
        Values by data set whose sample standard deviation (ddof = 1) is the half-width
        of the region of practical equivalence; by default `reference`, as in the paper.
    nsamples
        Number of draws from the posterior.

    Raises
    ------
    SettingsError
        When baycomp is not installed, or fewer than two data sets are in both.

    References
    ----------
    A. Benavoli, G. Corani, J. Demsar, M. Zaffalon, "Time for a change: a tutorial for
    comparing multiple classifiers through Bayesian analysis", JMLR 2017.
    """
    if find_spec("baycomp") is None:
        raise SettingsError(MISSING)
    import baycomp

    common = [name for name in reference if name in other]
    if len(common) < 2:
        raise SettingsError(
            f"a comparison needs two data sets, and there are results of both methods "
            f"on {len(common)}: evaluate more with --data"
        )
    x = np.array([reference[name] for name in common])
    y = np.array([other[name] for name in common])
    rope = float(np.std([(rope_from or reference)[name] for name in common], ddof=1))
    # baycomp's left probability is "the second has lower values"; these are errors, so
    # the first is worse.
    result = baycomp.two_on_multiple(
        x, y, rope=rope, nsamples=nsamples, random_state=SEED
    )
    if len(result) == 2:  # baycomp returns no probability of equality if rope is 0
        result = (result[0], 0.0, result[1])
    worse, equal, better = (float(value) for value in result)
    return Comparison(worse, equal, better, rope, len(common))


Means = Mapping[str, Mapping[str, float]]
"""Mean error by method and data set."""
Block = tuple[str, Means, tuple[str, str], Mapping[str, float] | None]
"""Title, errors, place in the paper's table, and what the rope is computed from."""


def comparison_table(
    results: pa.Table, summary: Summary, nsamples: int = NSAMPLES
) -> RenderedTable:
    """Table that compares XNQ with every other method.

    Without baycomp, or with too few data sets, it has a note instead of rows.
    """
    xnq = REFERENCE
    called = shown(xnq)
    groups: list[RowGroup] = []
    notes = [
        f"Probability that {called}'s error is higher, equal (within the rope) or "
        f"lower (Bayesian signed-rank test, {nsamples:,} draws, fixed seed). Rope: "
        "sample standard deviation (ddof = 1) of its data set means. In brackets: the "
        "paper's values, over its five binary or three multi-class data sets. The "
        "paper's values for RAE were computed with AE's rope, although its text names "
        "RAE's."
    ]
    kinds = {kind: summary.of_kind(kind) for kind in ("binary", "multi-class")}
    kinds = {kind: names for kind, names in kinds.items() if names}
    if find_spec("baycomp") is None:
        kinds, notes = {}, [MISSING]
    if len(kinds) > 1:
        kinds["all"] = summary.datasets
    ranked = [m for m in summary.methods if m not in GRAPH_LEVEL]
    for kind, datasets in kinds.items():
        name = f"{kind.capitalize()} data sets"
        ae, rae = (
            {m: summary.means(m, metric, datasets) for m in ranked}
            for metric in ("ae", "rae")
        )
        of_xnq = ae.get(xnq, {})
        if len(of_xnq) < 2:
            notes.append(
                f"{name}: {called} has results on {len(of_xnq)}; a comparison needs "
                "two."
            )
            continue
        blocks: list[Block] = [
            (f"{name}, AE", ae, (kind, "ae"), None),
            (f"{name}, RAE", rae, ("", ""), None),
        ]
        if (kind, "rae") in published.COMPARISON:
            title = f"{name}, RAE with the rope of AE"
            blocks.append((title, rae, (kind, "rae"), of_xnq))
        if kind == "binary":
            ablation = {
                q: part.means(xnq, "ae", datasets)
                for q, part in quantifiers_of(results, xnq).items()
                if q != "sld"
            }
            title = f"Binary data sets, AE, {called} with another quantifier"
            blocks.append((title, ablation | {xnq: of_xnq}, ("quantifier", "ae"), None))
        for title, means, printed, rope in blocks:
            rows = tuple(_rows(means, printed, nsamples, xnq, rope))
            groups += [RowGroup(rows, title)] if rows else []
    return RenderedTable(
        "comparison",
        f"Bayesian comparison with {called}",
        (
            *(f"{called} against", "Data sets", "Rope"),
            *("p(worse)", "p(equal)", "p(better)"),
        ),
        tuple(groups),
        tuple(notes),
    )


def _rows(
    means: Means,
    printed_as: tuple[str, str],
    nsamples: int,
    xnq: str,
    rope_from: Mapping[str, float] | None,
) -> Iterator[tuple[Cell, ...]]:
    """A row for every method that shares two data sets with the reference."""
    reference = means.get(xnq, {})
    if rope_from is not None:
        reference = {d: value for d, value in reference.items() if d in rope_from}
    printed = published.COMPARISON.get(printed_as, {})
    for name, other in means.items():
        if name == xnq or len({*reference} & {*other}) < 2:
            continue
        result = compare(reference, other, rope_from, nsamples)
        in_paper = printed.get(base(name))
        probabilities = result[:3]
        yield (
            Cell(shown(name)),
            Cell(str(result.datasets)),
            Cell(f"{result.rope:.4f}"),
            *(
                Cell(
                    f"{ours:.3f}",
                    f"{in_paper[place]:.3f}" if in_paper else "",
                    "best" if ours == max(probabilities) else "",
                )
                for place, ours in enumerate(probabilities)
            ),
        )
