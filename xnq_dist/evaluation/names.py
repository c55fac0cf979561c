"""Names and order of methods, quantifiers and data sets in all outputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from xnq_dist.core.method_records import METHODS
from xnq_dist.core.quantifiers import records
from xnq_dist.evaluation import paper_figures as published

__all__ = [
    "DATASET_ORDER",
    "base",
    "ordered",
    "ordered_methods",
    "shown",
    "span",
    "tally",
]

BASELINES = (
    *("wvrn", "cdq", "enq", "lbq", "lr"),
    *("features", "boosting", "gcn", "gat", "gin"),
)
DATASET_ORDER = (*published.BINARY, *published.MULTICLASS)

NAMES = {
    "amazon-ratings": "Amazon",
    "boosting": "Boosting",
    "cora": "Cora",
    "cora-2": "Cora-2",
    "cora-multi": "Cora-Multi",
    "facebook100": "Facebook 100",
    "facebook100-johnshopkins55": "Johns Hopkins 55",
    "features": "Features",
    "flickr": "Flickr",
    "genius": "Genius",
    "minesweeper": "Minesweeper",
    "questions": "Questions",
    "squirrel-filtered": "Squirrel",
    "tolokers": "Tolokers",
    "twitch": "Twitch",
    "twitch-de": "Twitch-DE",
    "twitch-engb": "Twitch-ENGB",
    "twitch-ptbr": "Twitch-PTBR",
    "wvrn": "wvRN",
    "wvrn-hard": "wvRN hard",
    **{
        name: name.upper()
        for name in (*("ae", "cdq", "enq", "gat", "gcn", "gin"), *("lbq", "lr", "rae"))
    },
}

VARIANTS = {"wvrn-hard": "wvrn"}


def _methods() -> tuple[str, ...]:
    """Names of the baselines, then of the pipeline's methods."""
    return (*BASELINES, *METHODS.records())


def base(method: str) -> str:
    """The method of the paper that a method is a variant of; itself for others.

    Examples
    --------
    >>> base("wvrn-hard"), base("xnq+")
    ('wvrn', 'xnq+')
    """
    return VARIANTS.get(method, method)


def shown(name: str) -> str:
    """Name of a method, quantifier, metric or data set as papers write it."""
    for recorded in (records(), METHODS.records()):
        if name in recorded:
            return recorded[name].title
    return NAMES.get(name, name)


def ordered(names: Iterable[str], order: Sequence[str]) -> tuple[str, ...]:
    """Distinct names: those in `order` first, the others alphabetically."""
    distinct = set(names)
    known = [name for name in order if name in distinct]
    return (*known, *sorted(distinct - set(order)))


def ordered_methods(names: Iterable[str]) -> tuple[str, ...]:
    """Distinct methods: those of the paper first, variants after their base method."""
    distinct = set(names)
    place = {name: rank for rank, name in enumerate(_methods())}
    key = {name: place.get(base(name), len(place)) for name in distinct}
    return tuple(sorted(distinct, key=lambda name: (key[name], name)))


def tally(names: Iterable[str]) -> str:
    """Names with their counts: ``sld``, or ``sld 3, dys 2``."""
    counts: dict[str, int] = defaultdict(int)
    for name in names:
        counts[name] += 1
    if len(counts) == 1:
        return next(iter(counts))
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {count}" for name, count in ranked)


def span(numbers: Iterable[int]) -> str:
    """One number, or the lowest and highest, as text."""
    ascending = sorted(numbers)
    low, high = ascending[0], ascending[-1]
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"
