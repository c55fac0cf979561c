"""Bayesian comparison of two methods over several data sets, by baycomp."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import pyarrow as pa

from xnq_dist.core.errors import SettingsError
from xnq_dist.evaluation import paper_figures as published
from xnq_dist.evaluation.names import base, shown
from xnq_dist.evaluation.rendered_table import Cell, RenderedTable, RowGroup
from xnq_dist.evaluation.summary import GRAPH_LEVEL, Summary, quantifiers_of

__all__ = ["NSAMPLES", "Comparison", "compare", "comparison_table"]

NSAMPLES = 10_000
"""Draws from the posterior: a probability is known to .005 (one standard error)."""
SEED = 0

MISSING = (
    "The Bayesian comparison needs the package baycomp: "
    "pip install 'xnq-dist[evaluation]'."
)


@dataclass(frozen=True)
class Comparison:
    """How probably the first of two methods is worse, equal, better."""

    worse: float
    equal: float
    better: float
    rope: float
    """Differences up to this count as equal."""
    datasets: int
    """Data sets that both methods were measured on."""


def compare(
    reference: Mapping[str, float],
    other: Mapping[str, float],
    rope_from: Mapping[str, float] | None = None,
    nsamples: int = NSAMPLES,
) -> Comparison:
    """Bayesian signed-rank test of two methods' mean errors; the same every time.

    Parameters
    ----------
    reference, other
        Mean error by data set; only data sets in both count.
    rope_from
        Figures by data set whose sample standard deviation (ddof = 1), over the data
        sets that count, is the half-width of the region of equality; by default the
        reference, as in the paper.
    nsamples
        Draws from the posterior.

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
            f"a comparison over {len(common)} data set(s) has no spread: evaluate at "
            "least two"
        )
    x = np.array([reference[name] for name in common])
    y = np.array([other[name] for name in common])
    rope = float(np.std([(rope_from or reference)[name] for name in common], ddof=1))
    # Errors: the left side is "the second has lower values", so the first is worse.
    found = baycomp.two_on_multiple(
        x, y, rope=rope, nsamples=nsamples, random_state=SEED
    )
    if len(found) == 2:  # without a region of equality baycomp answers with two
        found = (found[0], 0.0, found[1])
    worse, equal, better = (float(value) for value in found)
    return Comparison(worse, equal, better, rope, len(common))


Means = Mapping[str, Mapping[str, float]]
"""Mean error by method and data set."""


def comparison_table(
    results: pa.Table, summary: Summary, nsamples: int = NSAMPLES
) -> RenderedTable:
    """XNQ against every other method.

    Without baycomp, or with too few data sets, a note says so.
    """
    xnq = summary.reference
    called = shown(xnq)
    groups: list[RowGroup] = []
    notes = [
        f"Probability that {called}'s error is higher, within the rope, lower "
        f"(Bayesian signed-rank test, {nsamples:,} draws, fixed seed); rope: sample "
        "standard deviation (ddof = 1) of its data set means. In brackets: the "
        "paper's, over its five binary or three multi-class data sets. For RAE it "
        "prints what comes out with AE's rope, not with RAE's as its text says."
    ]
    kinds = {kind: summary.of_kind(kind) for kind in ("binary", "multi-class")}
    kinds = {kind: names for kind, names in kinds.items() if names}
    if find_spec("baycomp") is None:
        kinds, notes = {}, [MISSING]
    if len(kinds) > 1:
        kinds["all"] = summary.datasets
    for kind, datasets in kinds.items():
        errors = {
            metric: {
                m: summary.means(m, metric, datasets)
                for m in summary.methods
                if base(m) not in GRAPH_LEVEL
            }
            for metric in ("ae", "rae")
        }
        own = errors["ae"].get(xnq, {})
        if len(own) < 2:
            notes.append(
                f"{kind.capitalize()} data sets: {called} was measured on {len(own)}, "
                "a comparison needs two."
            )
            continue
        name = f"{kind.capitalize()} data sets"
        blocks: list[tuple[str, Means, tuple[str, str], Mapping[str, float] | None]] = [
            (f"{name}, AE", errors["ae"], (kind, "ae"), None),
            (f"{name}, RAE", errors["rae"], ("", ""), None),
        ]
        if (kind, "rae") in published.COMPARISON:
            title = f"{name}, RAE with the rope of AE"
            blocks.append((title, errors["rae"], (kind, "rae"), own))
        if kind == "binary":
            ablation = {
                q: its.means(xnq, "ae", datasets)
                for q, its in quantifiers_of(results, xnq).items()
                if q != "sld"
            }
            title = f"Binary data sets, AE, {called} with another quantifier"
            blocks.append((title, {xnq: own, **ablation}, ("quantifier", "ae"), None))
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
        found = compare(reference, other, rope_from, nsamples)
        theirs = printed.get(base(name))
        probabilities = (found.worse, found.equal, found.better)
        yield (
            Cell(shown(name)),
            Cell(str(found.datasets)),
            Cell(f"{found.rope:.4f}"),
            *(
                Cell(
                    f"{ours:.3f}",
                    f"{theirs[place]:.3f}" if theirs else "",
                    "best" if ours == max(probabilities) else "",
                )
                for place, ours in enumerate(probabilities)
            ),
        )
