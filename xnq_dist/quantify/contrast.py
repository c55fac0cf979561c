"""The difference of two communities' prevalence, with its interval.

The errors of two estimates by `auto` are not independent: both communities may lie in
the same groups of the graph, and all share the calibration. The stage ``quantify``
keeps what their covariance follows from (see `auto`): sums of f (1 - f) by community
and group, and the variances of the logit shifts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.special import erfc, ndtri

from xnq_dist.errors import SettingsError
from xnq_dist.quantify.loading import whole_stage
from xnq_dist.store import Manifest, RunDirectory, Stage

__all__ = ["Contrast", "contrast"]

SIZES = ["n_nodes", "n_estimated", "weight", "weight_estimated"]
COLUMNS = ["community", "parent", "class", *SIZES, "prevalence", "se"]
QUANTIFY = "quantify"


@dataclass(frozen=True)
class Contrast:
    """One class in two communities."""

    class_name: str
    first: float
    """Prevalence in the first community."""
    second: float
    difference: float
    """The first less the second."""
    se: float
    """Standard error of the difference."""
    lower: float
    """Lower end of its interval."""
    upper: float
    pvalue: float
    """Two-sided, of no difference."""


@dataclass(frozen=True, eq=False)
class _Community:
    """One community's rows, and its sums by group."""

    place: int
    parent: str | None
    size: float
    """Members that the prevalence is of, in node weights where there are any."""
    prevalence: NDArray[np.float64]
    se: NDArray[np.float64]
    groups: NDArray[np.int32]
    weights: NDArray[np.float64]
    """Shape (R, K)."""
    own: NDArray[np.float64]
    """Variance of the sum over its nodes, were they independent, shape (K,)."""


def contrast(location: str, first: str, second: str) -> list[Contrast]:
    """Compare two communities of a finished run, class by class.

    Parameters
    ----------
    location
        The run directory.
    first, second
        Names of the communities, as text.

    Raises
    ------
    SettingsError
        When a community is not in the run or has no estimate, or the run was not made
        with `auto`.
    StageError
        When the run is not complete.

    Notes
    -----
    Nodes that both communities have are counted as such where one community is above
    the other in the hierarchy. In other overlapping communities they are counted as if
    they were different nodes: the interval is then too wide, never too narrow.
    """
    run = RunDirectory(location)
    stage, manifest = run.stage(QUANTIFY), whole_stage(run, QUANTIFY)
    if not manifest.named("sums-"):
        raise SettingsError(
            f"{run.uri} does not hold what contrasts need: run again with "
            "quantifier = auto and memberships.drawn = unknown"
        )
    table = stage.read_table(manifest.named("prevalence-")[0], "prevalence", COLUMNS)
    classes = [str(name) for name in whole_stage(run, "labels").facts["classes"]]
    names = table["community"].combine_chunks()[:: len(classes)].cast(pa.string())
    exclude = manifest.inputs["labelled"] == "exclude"
    a, b = (
        _read(stage, manifest, table, names, name, len(classes), exclude, run.uri)
        for name in (first, second)
    )
    learnt = stage.read_arrays(manifest.named("learnt-")[0])
    shared = _shared_weight(table, names, len(classes), (a, b))
    covariance = _covariance(a, b, learnt, shared)
    if len(classes) == 2:
        covariance = np.repeat(covariance, 2)
    variance = np.maximum(a.se**2 + b.se**2 - 2 * covariance, 0.0)
    level = float(manifest.inputs["intervals"]["level"])
    half = float(ndtri((1 + level) / 2)) * np.sqrt(variance)
    difference = a.prevalence - b.prevalence
    with np.errstate(divide="ignore", invalid="ignore"):
        pvalue = erfc(np.abs(difference) / np.sqrt(2 * variance))
    pvalue[np.isnan(pvalue)] = 1.0  # both are known exactly, and equal
    return [
        Contrast(
            name,
            float(a.prevalence[k]),
            float(b.prevalence[k]),
            float(difference[k]),
            float(np.sqrt(variance[k])),
            float(max(difference[k] - half[k], -1.0)),
            float(min(difference[k] + half[k], 1.0)),
            float(pvalue[k]),
        )
        for k, name in enumerate(classes)
    ]


def _read(
    stage: Stage,
    manifest: Manifest,
    table: pa.Table,
    names: pa.Array,
    name: str,
    n_classes: int,
    exclude: bool,
    where: str,
) -> _Community:
    """One community; its name is looked up as text."""
    place = int(pc.index(names, name).as_py())
    if place < 0:
        raise SettingsError(
            f"there is no community {name!r} in {where}: see the column community of "
            "prevalence.parquet"
        )
    rows = table.slice(place * n_classes, n_classes)
    if rows["prevalence"].null_count:
        raise SettingsError(
            f"community {name!r} of {where} has no estimate to compare: "
            "see the column note of prevalence.parquet"
        )
    sums = stage.read_table(manifest.named("sums-")[0], "group_sums")
    own = sums.filter(pc.equal(sums["community"], place))
    width = sums.schema.field("weights").type.list_size

    def vectors(name: str) -> NDArray[np.float64]:
        values = own[name].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        return np.asarray(values.reshape(-1, width), np.float64)

    weighted = rows["weight"].null_count == 0
    sizes = SIZES[2:] if weighted else SIZES[:2]
    size = rows[sizes[1] if exclude else sizes[0]][0].as_py()
    return _Community(
        place=place,
        parent=rows["parent"].cast(pa.string())[0].as_py(),
        size=float(size),
        prevalence=rows["prevalence"].to_numpy(),
        se=rows["se"].to_numpy(),
        groups=own["group"].to_numpy(),
        weights=vectors("weights"),
        own=vectors("squares" if weighted else "weights").sum(axis=0),
    )


def _covariance(
    a: _Community,
    b: _Community,
    learnt: dict[str, NDArray[Any]],
    shared: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Of the two estimates, shape (K,)."""
    off = []
    for one in (a, b):
        by_group = -learnt["labelled"] * one.weights.sum(axis=0)
        by_group[one.groups] += one.weights
        off.append(by_group)
    by_group = (off[0] * off[1] * learnt["variances"]).sum(axis=0)
    of_all = a.weights.sum(axis=0) * b.weights.sum(axis=0) * learnt["shared"]
    return np.asarray((shared + by_group + of_all) / (a.size * b.size))


def _shared_weight(
    table: pa.Table,
    names: pa.Array,
    n_classes: int,
    pair: tuple[_Community, _Community],
) -> NDArray[np.float64]:
    """Variance that the nodes of both share, where one is known to hold the other."""
    parents = table["parent"].combine_chunks()[::n_classes].cast(pa.string())
    for below, above in (pair, pair[::-1]):
        place: int | None = below.place
        while place is not None:
            if place == above.place:
                return below.own
            parent = parents[place].as_py()
            place = None if parent is None else int(pc.index(names, parent).as_py())
    return np.zeros(pair[0].weights.shape[1])
