"""The difference of two communities' prevalence, with its interval.

The errors of two estimates by `auto` are not independent: both communities may be in
the same groups of the graph, and all share the calibration. The stage ``quantify``
keeps the parts of their covariance (see `auto`): sums of f (1 - f) by community and
group, and the variances of the logit shifts. Where labels may have been chosen by class
the difference has an interval in each of the two scenarios, and the reported interval
contains both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.special import erfc, ndtri

from xnq_dist.core.arrays import Floats, Ints32
from xnq_dist.core.errors import SettingsError
from xnq_dist.core.store import Manifest, RunDirectory, Stage
from xnq_dist.quantify.checks.quality import SUPPRESSED
from xnq_dist.quantify.default.node_sums import class_codes
from xnq_dist.quantify.default.scenarios import Tilt

__all__ = ["Contrast", "contrast"]

COLUMNS = [
    *("community", "class", "n_nodes", "n_estimated", "prevalence", "se"),
    *("quality", "note"),
]
QUANTIFY = "quantify"


@dataclass(frozen=True)
class Contrast:
    """One class in two communities."""

    class_name: str
    first: float
    """Prevalence in the first community."""
    second: float
    difference: float
    """The first minus the second."""
    se: float
    """Standard error of the difference."""
    lower: float
    """Lower end of its interval."""
    upper: float
    """Upper end of its interval."""
    pvalue: float
    """Two-sided, of no difference."""


@dataclass(frozen=True, eq=False)
class _Community:
    """Estimates of one community, and its sums by group in every scenario."""

    size: float
    """Members that the prevalence is of."""
    prevalence: Floats
    groups: Ints32
    weights: tuple[Floats, ...]
    """Shape (R, K) each."""
    errors: tuple[Floats, ...]
    """Standard error of the prevalence in a scenario, shape (C,) each."""
    moved: tuple[Floats, ...]
    """Prevalence in a scenario minus the published one, shape (C,) each."""


def contrast(location: str, first: str, second: str) -> list[Contrast]:
    """Compare two communities of a finished run, class by class.

    Parameters
    ----------
    location
        The run directory.
    first, second
        Names of the communities, as text.

    Returns
    -------
    One `Contrast` for each class.

    Raises
    ------
    SettingsError
        When a community is not in the run or has no estimate, or the run was not made
        with `auto`.
    StageError
        When the run is not complete.

    Notes
    -----
    Nodes that both communities share are treated as different nodes: the interval is
    then too wide, never too narrow.
    """
    run = RunDirectory(location)
    stage, manifest = run.stage(QUANTIFY), run.complete(QUANTIFY)
    if not manifest.named("sums-"):
        raise SettingsError(
            f"{run.uri} does not have the sums that contrasts need: run again with "
            "quantifier = auto and memberships.drawn = unknown"
        )
    table = stage.read_table(manifest.named("prevalence-")[0], "prevalence", COLUMNS)
    classes = [str(name) for name in run.complete("labels").facts["classes"]]
    names = table["community"].combine_chunks()[:: len(classes)].cast(pa.string())
    learnt = stage.read_arrays(manifest.named("learnt-")[0])
    partitions = int(learnt["partitions"])
    a, b = (
        _read(run, manifest, table, names, name, partitions) for name in (first, second)
    )
    level = float(manifest.inputs["intervals"]["level"])
    z = float(ndtri((1 + level) / 2))
    ends, pvalues = [], []
    for scenario in range(len(a.weights)):
        variance = _variance(a, b, learnt, scenario)
        if len(classes) == 2:
            variance = np.repeat(variance, 2)
        sd = np.sqrt(np.maximum(variance, 0.0))
        apart = a.prevalence + a.moved[scenario] - b.prevalence - b.moved[scenario]
        ends.append([apart - z * sd, apart + z * sd])
        with np.errstate(divide="ignore", invalid="ignore"):
            pvalue = erfc(np.abs(apart) / (np.sqrt(2) * sd))
        # NaN: both are known exactly, and equal.
        pvalues.append(np.where(np.isnan(pvalue), 1.0, pvalue))
    lower = np.min([low for low, _ in ends], axis=0)
    upper = np.max([high for _, high in ends], axis=0)
    difference, pvalue = a.prevalence - b.prevalence, np.max(pvalues, axis=0)
    return [
        Contrast(
            name,
            float(a.prevalence[k]),
            float(b.prevalence[k]),
            float(difference[k]),
            float((upper[k] - lower[k]) / (2 * z)),
            float(max(lower[k], -1.0)),
            float(min(upper[k], 1.0)),
            float(pvalue[k]),
        )
        for k, name in enumerate(classes)
    ]


def _read(
    run: RunDirectory,
    manifest: Manifest,
    table: pa.Table,
    names: pa.Array,
    name: str,
    partitions: int,
) -> _Community:
    """Read one community; its name is looked up as text."""
    stage, place = run.stage(QUANTIFY), int(pc.index(names, name).as_py())
    if place < 0:
        raise SettingsError(
            f"there is no community {name!r} in {run.uri}: see the column community of "
            "prevalence.parquet"
        )
    n_classes = len(table) // len(names)
    rows = table.slice(place * n_classes, n_classes)
    if rows["quality"][0].as_py() == SUPPRESSED:
        reason = rows["note"][0].as_py().removeprefix("suppressed: ")
        raise SettingsError(
            f"community {name!r} of {run.uri} is suppressed ({reason}): set "
            "disclosure.min_size lower and run again, or choose another community"
        )
    if rows["prevalence"].null_count:
        raise SettingsError(
            f"community {name!r} of {run.uri} has no estimate to compare: "
            "see the column note of prevalence.parquet"
        )
    weights = []
    for stem in (stem for stem in ("sums-", "tilted-") if manifest.named(stem)):
        sums = stage.read_table(manifest.named(stem)[0], "group_sums")
        by_group = sums.filter(pc.equal(sums["community"], place))
        weights.append(_vectors(by_group, "weights"))
    exclude = manifest.inputs["labelled"] == "exclude"
    estimated = float(rows["n_estimated"][0].as_py())
    size = estimated if exclude else float(rows["n_nodes"][0].as_py())
    part = estimated / size if size else 0.0
    se = rows["se"].to_numpy()
    moved, errors = _in_scenarios(stage, manifest, place, part, se)
    return _Community(
        size=size,
        prevalence=rows["prevalence"].to_numpy(),
        groups=by_group["group"].to_numpy(),
        weights=tuple(weights),
        errors=errors,
        moved=moved,
    )


def _vectors(table: pa.Table, name: str) -> Floats:
    """Convert a column of vectors to an array, shape (rows, K)."""
    width = table.schema.field(name).type.list_size
    values = table[name].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return np.asarray(values.reshape(-1, width), np.float64)


def _in_scenarios(
    stage: Stage, manifest: Manifest, place: int, part: float, se: Floats
) -> tuple[tuple[Floats, ...], tuple[Floats, ...]]:
    """Each scenario's prevalence minus the published one, and its standard errors."""
    if not manifest.named("scenarios-"):
        return (np.zeros(len(se)),), (se,)
    share = float(manifest.facts["labels"]["tilted"])
    table = stage.read_table(manifest.named("scenarios-")[0], "scenarios")
    rows = table.filter(pc.equal(table["community"], place))
    between = rows["if_by_class"].to_numpy() - rows["if_random"].to_numpy()
    between = np.nan_to_num(between)  # no unlabelled member
    errors = (
        part * np.nan_to_num(rows[name].to_numpy())
        for name in ("se_random", "se_by_class")
    )
    return (-share * part * between, (1 - share) * part * between), tuple(errors)


def _variance(
    a: _Community,
    b: _Community,
    learnt: dict[str, NDArray[Any]],
    scenario: int,
) -> Floats:
    """Variance of the difference of the two estimates, shape (K,)."""
    tilt = Tilt.from_arrays(learnt)
    inflation, of_all, partitions = 1.0, learnt["shared"], int(learnt["partitions"])
    if tilt is not None and (tilt.alone or scenario == 1):
        inflation, of_all = tilt.inflation**2, tilt.shared(of_all)

    off, sums = [], []
    for each in (a, b):
        weights = each.weights[scenario]
        # The groups of each partition add up to all members.
        sums.append(weights.sum(axis=0) / partitions)
        by_group = -learnt["labelled"] * sums[-1]
        by_group[each.groups] += weights
        off.append(by_group)
    covariance = (off[0] * off[1] * learnt["variances"]).sum(axis=0)
    covariance += sums[0] * sums[1] * of_all
    covariance *= inflation / (a.size * b.size)
    errors = a.errors[scenario] ** 2 + b.errors[scenario] ** 2
    codes = list(class_codes(len(errors)))
    return np.asarray(errors[codes] - 2 * covariance)
