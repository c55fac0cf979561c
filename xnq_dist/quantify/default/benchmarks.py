"""Benchmarks of a run: known shares of groups of nodes, and their checks.

The checks need no posteriors, so an unusable table is reported before hours of work.
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
from xnq_dist.core.errors import InputError, SettingsError
from xnq_dist.core.inputs import choose_source
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph import layout
from xnq_dist.graph.benchmark_table import BenchmarkTable, group_name, read_benchmarks
from xnq_dist.graph.node_weights import read_node_weights
from xnq_dist.graph.sort import PairChunk
from xnq_dist.graph.tables import Sources
from xnq_dist.quantify.default.raking import Cells, contradiction
from xnq_dist.quantify.interface import Communities, Labelled
from xnq_dist.quantify.sources import open_memberships

__all__ = ["ChosenBenchmark", "Targets", "benchmark_of", "check_benchmark"]


ROUNDED = 1e-6
"""Accepted rounding error, relative to a group's size."""
MAX_GROUPS = 1000


@dataclass(eq=False)
class ChosenBenchmark:
    """Members of chosen communities, collected while all communities are read."""

    codes: Ints
    """The communities, -1: all nodes, shape (G,)."""
    members: dict[int, Ints] = field(default_factory=dict)

    @classmethod
    def of(cls, table: BenchmarkTable, names: pa.Array) -> ChosenBenchmark:
        """Look up the communities of a table; unknown or too many: `InputError`."""
        text = names.cast(pa.string())
        codes = [
            -1 if group is None else int(pc.index(text, group).as_py())
            for group in table.groups
        ]
        for group, code in zip(table.groups, codes, strict=True):
            if group is not None and code < 0:
                raise InputError(
                    f"benchmark table {table.path} names community {group!r}, which "
                    "is not among the communities of the run: correct it, or remove "
                    "the row"
                )
        if len(codes) > MAX_GROUPS:
            raise InputError(
                f"benchmark table {table.path} names {len(codes)} communities: keep at "
                f"most {MAX_GROUPS}"
            )
        return cls(np.array(codes, np.int64))

    def through(self, chunks: Iterator[PairChunk]) -> Iterator[PairChunk]:
        """Yield the chunks unchanged, and keep the members of these communities."""
        for chunk in chunks:
            inside = (self.codes >= chunk.first) & (self.codes < chunk.last)
            for code in self.codes[inside].tolist():
                at = code - chunk.first
                members = chunk.minor[chunk.indptr[at] : chunk.indptr[at + 1]]
                self.members[code] = members.copy()
            yield chunk

    def read(self, chunks: Iterator[PairChunk]) -> None:
        """Keep the members from the chunks."""
        for _ in self.through(chunks):
            pass

    def communities(self, n_nodes: int) -> Communities:
        """Return the members, after all chunks have been read."""
        self.members[-1] = np.arange(n_nodes)
        members = [self.members[code] for code in self.codes.tolist()]
        offsets = np.cumsum([0, *(len(each) for each in members)]).astype(np.int64)
        return Communities(offsets, np.concatenate(members).astype(np.int64))


@dataclass(frozen=True, eq=False)
class Targets:
    """Known shares of G groups, and the sums that posteriors have to meet."""

    path: str
    """The table."""
    groups: list[str | None]
    """Their names, None: all nodes."""
    codes: Ints
    """Their communities, -1: all nodes, shape (G,)."""
    members: Communities
    sizes: Floats
    """Denominators of their prevalence, in nodes or node weights, shape (G,)."""
    shares: Floats
    """Prevalence of each class, NaN where it is not known, shape (G, C)."""
    se: Floats
    """Its standard error, shape (G, C)."""
    sums: Floats
    """Number or weight of unlabelled members of each class, shape (G, C)."""

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
        """Construct from a table with known classes; without weights nodes count once.

        Counts above a group's size, and labels or benchmarks that contradict a
        benchmark, are an `InputError`.
        """
        members = chosen.communities(len(labels))
        sizes = np.zeros(len(members))
        shape = (len(members), len(classes))
        shares, se, sums = np.full(shape, np.nan), np.zeros(shape), np.zeros(shape)
        for g, group in enumerate(table.groups):
            nodes = members.members[members.offsets[g] : members.offsets[g + 1]]
            u = np.ones(len(nodes)) if weights is None else weights[nodes]
            known = labels[nodes] >= 0
            counts = np.zeros(len(classes))
            if labelled == "count":
                counts += np.bincount(labels[nodes][known], u[known], len(classes))
            free = float(u[~known].sum())
            sizes[g] = counts.sum() + free
            shares[g], se[g] = _values(table, group, classes, float(sizes[g]))
            sums[g] = _unlabelled(table, group, classes, shares[g], counts, free)
        targets = cls(
            table.path, table.groups, chosen.codes, members, sizes, shares, se, sums
        )
        free_weight = np.where(labels < 0, 1.0 if weights is None else weights, 0.0)
        targets.check_each_other(free_weight)
        return targets

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all fields but the names, for a file."""
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
        """Construct from the result of `arrays` and the names."""
        members = Communities(arrays.pop("offsets"), arrays.pop("members"))
        return cls(path=path, groups=groups, members=members, **arrays)

    def check_each_other(self, free_weight: Floats) -> None:
        """Raise an `InputError` for benchmarks that contradict each other.

        `free_weight` is the weight of every node, 0 where it is labelled.
        """
        cells = Cells.of(self.members, len(free_weight))
        of_cell = cells.sums(free_weight)
        pair = contradiction(of_cell, cells.incidence, self.sums, self.sizes)
        if pair is not None:
            raise self.contradicts(*pair)

    def contradicts(self, first: int, second: int, others: bool) -> InputError:
        """Return the error for two groups that contradict each other or the others."""
        names = group_name(self.groups[first]), group_name(self.groups[second])
        among = "each other and the other benchmarks" if others else "each other"
        return InputError(
            f"the benchmarks of {names[0]} and {names[1]} contradict {among}: no "
            f"classes of the unlabelled nodes meet all of them; correct them in "
            f"{self.path}"
        )


def _values(
    table: BenchmarkTable, group: str | None, classes: list[str], size: float
) -> tuple[Floats, Floats]:
    """Shares and standard errors of one group's classes, implied ones included."""
    if not size > 0:
        raise InputError(
            f"benchmark table {table.path} names {group_name(group)}, which has no "
            "members that count: remove the row"
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
    known = ~np.isnan(shares)
    total = float(shares[known].sum())
    if total > 1 + ROUNDED or (known.all() and total < 1 - ROUNDED):
        raise InputError(
            f"the counts of {group_name(group)} in benchmark table {table.path} add up "
            f"to {total * size:.6g}, but its size is {size:g}: correct the counts"
        )
    if known.all() or total > 1:
        shares /= total
    if known.sum() == len(classes) - 1 or total >= 1 - 1e-12:
        shares[~known] = max(0.0, 1 - total) / max(int((~known).sum()), 1)
        se[~known] = np.sqrt((se**2).sum())
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
    """Unlabelled members of each class in one group, NaN: not known."""
    size = counts.sum() + free
    sums = shares * size - counts
    low = np.flatnonzero(sums < -ROUNDED * size)
    if len(low):
        at = int(low[0])
        raise InputError(
            f"{counts[at]:g} of the {size:g} in {group_name(group)} are labelled "
            f"{classes[at]!r}, but its benchmark is {shares[at] * size:.6g} (a share "
            f"of {shares[at]:.4g}; {table.path}): correct the benchmark or the labels"
        )
    sums = np.maximum(sums, 0.0)
    total = float(np.nansum(sums))
    if total > free + ROUNDED * size:
        raise InputError(
            f"the benchmarks of {group_name(group)} need {total:.6g} unlabelled "
            f"members, but there are {free:g} ({table.path}): correct the benchmark or "
            "the labels"
        )
    if not np.isnan(sums).any() or total > free:
        sums *= free / total if total > 0 else 1.0
    return np.asarray(sums)


def benchmark_of(settings: Settings, source: str) -> BenchmarkTable | None:
    """Read the table of benchmarks of a run; None where none is named.

    A table that names communities is a `SettingsError` where they are detected.
    """
    if settings.benchmark is None:
        return None
    table = read_benchmarks(settings.benchmark, settings.columns, settings.input)
    if source == "leiden" and table.groups != [None]:
        raise SettingsError(
            f"benchmark table {table.path} names {group_name(table.groups[-1])}, but "
            "the communities of this run are yet to be detected: name them with "
            "--memberships, or benchmark only the complete graph"
        )
    return table


def check_benchmark(run: RunDirectory, sources: Sources, settings: Settings) -> None:
    """Check the table of benchmarks of a run before posteriors are computed.

    Parameters
    ----------
    run
        With complete stages ``graph`` and ``labels``.

    Raises
    ------
    InputError, SettingsError
        When the table cannot be used.
    """
    source = choose_source(sources.memberships, settings)
    table = benchmark_of(settings, source)
    if table is None:
        return
    graph, known = run.complete("graph"), run.complete("labels")
    classes = [str(name) for name in known.facts["classes"]]
    table.check_classes(classes)
    nodes = layout.load_ids(run.stage("graph"), graph)
    chosen = ChosenBenchmark(np.array([-1]))
    if table.groups != [None]:
        inputs = run, graph, nodes, sources, settings, source
        with open_memberships(*inputs) as memberships:
            chosen = ChosenBenchmark.of(table, memberships.names)
            chosen.read(memberships.chunks())
    weights = read_node_weights(sources.nodes, settings.columns, nodes, settings.input)
    labels = layout.load_labels(run.stage("labels"), known)
    Targets.of(table, classes, chosen, labels, weights, settings.labelled)
