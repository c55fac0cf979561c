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

__all__ = [
    "NSAMPLES",
    "Comparison",
    "available",
    "compare",
    "comparison_tables",
    "rope_of",
]

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


def available() -> bool:
    """Whether baycomp is installed."""
    return find_spec("baycomp") is not None


def rope_of(reference: Mapping[str, float]) -> float:
    """Sample standard deviation (ddof = 1) of the reference's data set means.

    Raises
    ------
    SettingsError
        For fewer than two data sets.
    """
    if len(reference) < 2:
        raise SettingsError(
            f"a comparison over {len(reference)} data set(s) has no spread: evaluate "
            "at least two"
        )
    return float(np.std(list(reference.values()), ddof=1))


def compare(
    reference: Mapping[str, float],
    other: Mapping[str, float],
    rope: float | None = None,
    nsamples: int = NSAMPLES,
) -> Comparison:
    """Bayesian signed-rank test of two methods' mean errors; the same every time.

    Parameters
    ----------
    reference, other
        Mean error by data set; only data sets in both count.
    rope
        Half-width of the region of equality; by default `rope_of` the reference on
        the data sets that count, as in the paper.
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
    if not available():
        raise SettingsError(MISSING)
    import baycomp

    common = [name for name in reference if name in other]
    x = np.array([reference[name] for name in common])
    y = np.array([other[name] for name in common])
    own = rope_of({name: reference[name] for name in common})
    width = own if rope is None else rope
    # Errors: the left side is "the second has lower values", so the first is worse.
    found = baycomp.two_on_multiple(
        x, y, rope=width, nsamples=nsamples, random_state=SEED
    )
    if len(found) == 2:  # without a region of equality baycomp answers with two
        found = (found[0], 0.0, found[1])
    worse, equal, better = (float(value) for value in found)
    return Comparison(worse, equal, better, width, len(common))


Means = Mapping[str, Mapping[str, float]]
"""Mean error by method and data set."""
HEADER = ("XNQ against", "Data sets", "Rope", "p(worse)", "p(equal)", "p(better)")


def comparison_tables(
    results: pa.Table, summary: Summary, nsamples: int = NSAMPLES
) -> list[RenderedTable]:
    """XNQ against every other method, from our figures and from the printed ones.

    The second table holds this code against the paper's own. Without baycomp, or with
    too few data sets, a table without rows says so.
    """
    if not available():
        title = "Bayesian comparison with XNQ"
        return [RenderedTable("comparison", title, HEADER, (), (MISSING,))]
    return [_ours(results, summary, nsamples), _check(nsamples)]


def _ours(results: pa.Table, summary: Summary, nsamples: int) -> RenderedTable:
    groups: list[RowGroup] = []
    xnq = summary.reference
    called = shown(xnq)
    notes = [
        f"Probability that {called}'s error is higher, within the rope, lower "
        f"(Bayesian signed-rank test, {nsamples:,} draws, fixed seed); rope: sample "
        "standard deviation (ddof = 1) of its data set means. In brackets: the "
        "paper's, over its five binary or three multi-class data sets."
    ]
    kinds = {
        kind: names
        for kind in ("binary", "multi-class")
        if (names := summary.of_kind(kind))
    }
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
        measured = len(errors["ae"].get(xnq, {}))
        if measured < 2:
            notes.append(
                f"{kind.capitalize()} data sets: {called} was measured on "
                f"{measured}, a comparison needs two."
            )
            continue
        groups += _groups(kind, errors, nsamples, xnq)
        if kind == "binary":
            ablation = {
                q: its.means(xnq, "ae", datasets)
                for q, its in quantifiers_of(results, xnq).items()
                if q != "sld"
            }
            means = {xnq: errors["ae"][xnq], **ablation}
            title = f"Binary data sets, AE, {called} with another quantifier"
            groups += _group(title, means, ("quantifier", "ae"), nsamples, xnq)
    return RenderedTable(
        "comparison",
        f"Bayesian comparison with {called}, from our figures",
        (f"{called} against", *HEADER[1:]),
        tuple(groups),
        tuple(notes),
    )


def _check(nsamples: int) -> RenderedTable:
    """The paper's table from the paper's means."""

    def means(metric: str, datasets: tuple[str, ...]) -> Means:
        return {
            m: {d: row[d].mean for d in datasets if d in row}
            for m, row in published.ERRORS[metric].items()
        }

    groups: list[RowGroup] = []
    for kind, datasets in (
        ("binary", published.BINARY),
        ("multi-class", published.MULTICLASS),
    ):
        errors = {metric: means(metric, datasets) for metric in ("ae", "rae")}
        groups += _groups(kind, errors, nsamples)
    other = {
        q: {d: row[d].mean for d in published.BINARY}
        for q, row in published.QUANTIFIERS.items()
        if q != "sld"
    }
    own = means("ae", published.BINARY)["xnq"]
    title = "Binary data sets, AE, XNQ with another quantifier"
    groups += _group(title, {"xnq": own, **other}, ("quantifier", "ae"), nsamples)
    return RenderedTable(
        "comparison-published",
        "Check: the same comparison from the paper's printed means",
        HEADER,
        tuple(groups),
        (
            "In brackets: the probabilities that the paper prints. For RAE it prints "
            "what comes out with AE's rope, not with RAE's as its text says; only CDQ "
            "on the multi-class sets comes out with neither.",
        ),
    )


def _groups(
    kind: str, errors: Mapping[str, Means], nsamples: int, xnq: str = "xnq"
) -> Iterator[RowGroup]:
    """AE, RAE with its own rope, RAE with the rope of AE (as the paper's figures)."""
    name = f"{kind.capitalize()} data sets"
    yield from _group(f"{name}, AE", errors["ae"], (kind, "ae"), nsamples, xnq)
    yield from _group(f"{name}, RAE", errors["rae"], ("", ""), nsamples, xnq)
    if (kind, "rae") in published.COMPARISON:
        yield from _group(
            f"{name}, RAE with the rope of AE",
            errors["rae"],
            (kind, "rae"),
            nsamples,
            xnq,
            errors["ae"].get(xnq, {}),
        )


def _group(
    title: str,
    means: Means,
    printed_as: tuple[str, str],
    nsamples: int,
    xnq: str = "xnq",
    rope_from: Mapping[str, float] | None = None,
) -> Iterator[RowGroup]:
    reference = means.get(xnq, {})
    if rope_from is not None:
        reference = {d: value for d, value in reference.items() if d in rope_from}
    printed = published.COMPARISON.get(printed_as, {})
    rows = []
    for name, other in means.items():
        common = {d: value for d, value in reference.items() if d in other}
        if name == xnq or len(common) < 2:
            continue
        width = common if rope_from is None else {d: rope_from[d] for d in common}
        found = compare(reference, other, rope_of(width), nsamples)
        theirs = printed.get(base(name))
        probabilities = (found.worse, found.equal, found.better)
        top = max(probabilities)
        rows.append(
            (
                Cell(shown(name)),
                Cell(str(found.datasets)),
                Cell(f"{found.rope:.4f}"),
                *(
                    Cell(
                        f"{ours:.3f}",
                        f"{theirs[place]:.3f}" if theirs else "",
                        "best" if ours == top else "",
                    )
                    for place, ours in enumerate(probabilities)
                ),
            )
        )
    if rows:
        yield RowGroup(tuple(rows), title)
