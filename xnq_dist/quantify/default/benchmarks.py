"""Benchmarks of a run: known shares of groups of nodes, checked.

All checks work without posteriors, so that an unusable table is refused before hours of
work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints, Ints32
from xnq_dist.core.config import Settings
from xnq_dist.core.errors import InputError, SettingsError
from xnq_dist.core.inputs import choose_source
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph import layout
from xnq_dist.graph.benchmark_table import BenchmarkTable, group_name, read_benchmarks
from xnq_dist.graph.node_weights import read_node_weights
from xnq_dist.graph.sort import PairChunk
from xnq_dist.graph.tables import Sources
from xnq_dist.quantify.default.raking import Cells, contradiction
from xnq_dist.quantify.interface import Communities, Labelled
from xnq_dist.quantify.loading import complete_stage
from xnq_dist.quantify.sources import open_memberships

__all__ = ["ChosenBenchmark", "Targets", "benchmark_of", "check_benchmark"]


ROUNDED = 1e-6
"""Rounding error that is accepted, as part of a group's size."""
MOST_GROUPS = 1000


@dataclass(eq=False)
class ChosenBenchmark:
    """Members of some communities, kept as all of them pass by."""

    codes: Ints
    """The communities, -1: all nodes, shape (G,)."""
    members: dict[int, Ints] = field(default_factory=dict)

    @classmethod
    def of(cls, table: BenchmarkTable, names: pa.Array) -> ChosenBenchmark:
        """The communities that a table names; too many or unknown: `InputError`."""
        text = names.cast(pa.string())
        codes = [
            -1 if group is None else int(pc.index(text, group).as_py())
            for group in table.groups
        ]
        for group, code in zip(table.groups, codes, strict=True):
            if group is not None and code < 0:
                raise InputError(
                    f"benchmark table {table.path} names community {group!r}, which "
                    "is not among the communities of the run: correct it, or take the "
                    "row out"
                )
        if len(codes) > MOST_GROUPS:
            raise InputError(
                f"benchmark table {table.path} names {len(codes)} communities: give "
                f"{MOST_GROUPS} at most"
            )
        return cls(np.array(codes, np.int64))

    def through(self, chunks: Iterator[PairChunk]) -> Iterator[PairChunk]:
        """The same chunks; the members of these communities are kept."""
        for chunk in chunks:
            inside = (self.codes >= chunk.first) & (self.codes < chunk.last)
            for code in self.codes[inside].tolist():
                at = code - chunk.first
                own = chunk.minor[chunk.indptr[at] : chunk.indptr[at + 1]]
                self.members[code] = own.copy()
            yield chunk

    def read(self, chunks: Iterator[PairChunk]) -> None:
        """Keep the members; nothing else is done with the chunks."""
        for _ in self.through(chunks):
            pass

    def communities(self, n_nodes: int) -> Communities:
        """The members, once all chunks have passed."""
        self.members[-1] = np.arange(n_nodes)
        own = [self.members[code] for code in self.codes.tolist()]
        offsets = np.cumsum([0, *(len(each) for each in own)]).astype(np.int64)
        return Communities(offsets, np.concatenate(own).astype(np.int64))


@dataclass(frozen=True, eq=False)
class Targets:
    """What is known of G groups, in numbers of nodes or in node weights."""

    path: str
    """The table."""
    groups: list[str | None]
    codes: Ints
    """Their communities, -1: all nodes, shape (G,)."""
    members: Communities
    sizes: Floats
    """What their prevalence is of, shape (G,)."""
    shares: Floats
    """Prevalence of each class, NaN where it is not known, shape (G, C)."""
    se: Floats
    """Its standard error, shape (G, C)."""
    sums: Floats
    """The classes' part of the unlabelled members, shape (G, C)."""

    @classmethod
    def of(
        cls,
        table: BenchmarkTable,
        classes: list[str],
        chosen: ChosenBenchmark,
        labels: Ints32,
        weights: Floats | None,
        labelled: Labelled,
    ) -> Targets:
        """From a table, its classes checked; without weights every node counts once.

        Counts above a group's size, and labels or benchmarks that contradict a
        benchmark, are an `InputError`.
        """
        members = chosen.communities(len(labels))
        sizes = np.zeros(len(members))
        shape = (len(members), len(classes))
        shares, se, sums = np.full(shape, np.nan), np.zeros(shape), np.zeros(shape)
        for g, group in enumerate(table.groups):
            own = members.members[members.offsets[g] : members.offsets[g + 1]]
            u = np.ones(len(own)) if weights is None else weights[own]
            known = labels[own] >= 0
            counts = np.zeros(len(classes))
            if labelled == "count":
                counts += np.bincount(labels[own][known], u[known], len(classes))
            free = float(u[~known].sum())
            sizes[g] = counts.sum() + free
            shares[g], se[g] = _values(table, group, classes, float(sizes[g]))
            sums[g] = _unlabelled(table, group, classes, shares[g], counts, free)
        made = cls(
            table.path, table.groups, chosen.codes, members, sizes, shares, se, sums
        )
        free_weight = np.where(labels < 0, 1.0 if weights is None else weights, 0.0)
        made.check_each_other(free_weight)
        return made

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All but names, for an npz file."""
        names = ("codes", "sizes", "shares", "se", "sums")
        return {
            **{name: getattr(self, name) for name in names},
            "offsets": self.members.offsets,
            "members": self.members.members,
        }

    @classmethod
    def from_arrays(
        cls, path: str, groups: list[str | None], arrays: dict[str, NDArray[Any]]
    ) -> Targets:
        """From what `arrays` gives, and the names."""
        members = Communities(arrays.pop("offsets"), arrays.pop("members"))
        return cls(path=path, groups=groups, members=members, **arrays)

    def check_each_other(self, free_weight: Floats) -> None:
        """Refuse benchmarks that cannot hold together.

        The weight of a node is 0 where it is labelled.
        """
        cells = Cells.of(self.members, len(free_weight))
        of_cell = cells.sums(free_weight)
        pair = contradiction(of_cell, cells.incidence, self.sums, self.sizes)
        if pair is not None:
            raise self.contradicts(*pair)

    def contradicts(self, first: int, second: int, others: bool) -> InputError:
        """The error that names two groups, which contradict each other or the rest."""
        names = group_name(self.groups[first]), group_name(self.groups[second])
        among = "each other and the other benchmarks" if others else "each other"
        return InputError(
            f"the benchmarks of {names[0]} and {names[1]} contradict {among}: no "
            f"classes of the unlabelled nodes meet them together; correct them in "
            f"{self.path}"
        )


def _values(
    table: BenchmarkTable, group: str | None, classes: list[str], size: float
) -> tuple[Floats, Floats]:
    """Shares of the classes of one group, those that follow included, and errors."""
    if not size > 0:
        raise InputError(
            f"benchmark table {table.path} names {group_name(group)}, which has no "
            "members that prevalence could be of: take the row out"
        )
    shares, se = np.full(len(classes), np.nan), np.zeros(len(classes))
    unit = 1.0 if table.shares else size
    for row in table.rows:
        if row.community == group:
            at = classes.index(row.class_name)
            shares[at], se[at] = row.value / unit, row.se / unit
            if shares[at] > 1 + ROUNDED:
                raise InputError(
                    f"the count {row.value:g} of class {row.class_name!r} in "
                    f"{group_name(group)} is above its size, {size:g} (benchmark table "
                    f"{table.path}): correct the count"
                )
    given = ~np.isnan(shares)
    total = float(shares[given].sum())
    if total > 1 + ROUNDED or (given.all() and total < 1 - ROUNDED):
        raise InputError(
            f"the counts of {group_name(group)} add up to {total * size:.6g} in "
            f"benchmark table {table.path} and its size is {size:g}: correct the counts"
        )
    if given.all() or total > 1:
        shares /= total
    if given.sum() == len(classes) - 1 or total >= 1 - 1e-12:
        shares[~given] = max(0.0, 1 - total) / max(int((~given).sum()), 1)
        se[~given] = np.sqrt((se**2).sum())
    if len(classes) == 2:
        se[:] = se.max()
    return shares, se


def _unlabelled(
    table: BenchmarkTable,
    group: str | None,
    classes: list[str],
    shares: Floats,
    counts: Floats,
    free: float,
) -> Floats:
    """The classes' part of the unlabelled members of one group, NaN: not known."""
    size = counts.sum() + free
    sums = shares * size - counts
    low = np.flatnonzero(sums < -ROUNDED * size)
    if len(low):
        at = int(low[0])
        raise InputError(
            f"{counts[at]:g} of the {size:g} in {group_name(group)} are labelled "
            f"{classes[at]!r} and its benchmark is {shares[at] * size:.6g} (a share of "
            f"{shares[at]:.4g}; {table.path}): correct the benchmark or the labels"
        )
    sums = np.maximum(sums, 0.0)
    total = float(np.nansum(sums))
    if total > free + ROUNDED * size:
        raise InputError(
            f"the benchmarks of {group_name(group)} need {total:.6g} unlabelled "
            f"members and it has {free:g} ({table.path}): correct the benchmark or the "
            "labels"
        )
    if not np.isnan(sums).any() or total > free:
        sums *= free / total if total > 0 else 1.0
    return np.asarray(sums)


def benchmark_of(settings: Settings, source: str) -> BenchmarkTable | None:
    """The table of benchmarks of a run; None where none is named.

    One that names communities that are yet to be detected is a `SettingsError`.
    """
    if settings.benchmark is None:
        return None
    table = read_benchmarks(settings.benchmark, settings.columns)
    if source == "leiden" and table.groups != [None]:
        raise SettingsError(
            f"benchmark table {table.path} names {group_name(table.groups[-1])} and "
            "the communities of this run are yet to be detected: name them with "
            "--memberships, or benchmark the whole graph alone"
        )
    return table


def check_benchmark(run: RunDirectory, sources: Sources, settings: Settings) -> None:
    """Refuse a table of benchmarks that cannot be used, before posteriors are there.

    Parameters
    ----------
    run
        With whole stages ``graph`` and ``labels``.

    Raises
    ------
    InputError, SettingsError
        In one sentence, with what to do.
    """
    source = choose_source(sources.memberships, settings)
    table = benchmark_of(settings, source)
    if table is None:
        return
    graph, known = complete_stage(run, "graph"), complete_stage(run, "labels")
    classes = [str(name) for name in known.facts["classes"]]
    table.check_classes(classes)
    nodes = layout.load_ids(run.stage("graph"), graph)
    chosen = ChosenBenchmark(np.array([-1]))
    if table.groups != [None]:
        asked = run, graph, nodes, sources, settings, source
        with open_memberships(*asked) as memberships:
            chosen = ChosenBenchmark.of(table, memberships.names)
            chosen.read(memberships.chunks())
    weights = read_node_weights(sources.nodes, settings.columns, nodes)
    labels = layout.load_labels(run.stage("labels"), known)
    Targets.of(table, classes, chosen, labels, weights, settings.labelled)
