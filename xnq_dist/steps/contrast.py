"""The difference of two communities' prevalence, with its interval.

The errors of two estimates by `auto` are not independent: both communities may be in
the same groups of the graph, and all share the calibration. The variance of a
difference is that of both published estimates without twice their covariance, of which
the stage ``quantify`` keeps the parts (see `auto`): sums of f (1 - f) by community and
group, and the variances of the logit shifts. Where labels may have been chosen by class
the difference has an interval in each of the two scenarios, and the reported interval
contains both.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import erfc, ndtri

from xnq_dist.core.arrays import Floats
from xnq_dist.core.errors import SettingsError
from xnq_dist.core.store import RunDirectory
from xnq_dist.quantify.checks.quality import SUPPRESSED
from xnq_dist.quantify.default.node_sums import class_codes
from xnq_dist.quantify.default.scenarios import Tilt

__all__ = ["contrast"]

SCENARIOS = ("sums-", "tilted-")
"""Files of sums by group if labels are a random sample, and if chosen by class."""
STANDARD_ERRORS = ("se_random", "se_by_class")
"""Columns of the unlabelled members' standard errors in the same cases."""


def contrast(location: str, first: str, second: str) -> pa.Table:
    """Compare two communities of a finished run, class by class.

    Parameters
    ----------
    location
        The run directory.
    first, second
        Names of the communities, as text.

    Returns
    -------
    One row for each class: ``class_name``, the shares ``first`` and ``second``, their
    ``difference`` with ``se``, the interval ``lower`` and ``upper``, and ``pvalue`` of
    no difference.

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
    stage, manifest = run.stage("quantify"), run.complete("quantify")
    if not manifest.named("sums-"):
        raise SettingsError(
            f"{run.uri} does not have the sums that contrasts need: run again with "
            "quantifier = auto and memberships.drawn = unknown"
        )
    table = stage.read_table(manifest.named("prevalence-")[0], "prevalence")
    classes = [str(name) for name in run.complete("labels").facts["classes"]]
    (at, one), (other, two) = (
        _find(table, len(classes), name, run.uri) for name in (first, second)
    )
    about = "n_estimated" if manifest.inputs["labelled"] == "exclude" else "n_nodes"
    sizes = [float(rows[about][0].as_py()) for rows in (one, two)]
    shares = [rows["prevalence"].to_numpy() for rows in (one, two)]
    difference = shares[0] - shares[1]
    if_random, if_by_class = difference, difference
    errors = [[rows["se"].to_numpy() for rows in (one, two)]]
    if manifest.named("scenarios-"):
        mixture = float(manifest.facts["labels"]["tilted"])
        rows = stage.read_table(manifest.named("scenarios-")[0], "scenarios")
        between = pc.subtract(rows["if_by_class"], rows["if_random"])
        # Null: no unlabelled member.
        moved = pc.fill_null(between, 0.0).to_numpy().reshape(-1, len(classes))
        parts = [
            each["n_estimated"][0].as_py() / size
            for each, size in zip((one, two), sizes, strict=True)
        ]
        shift = parts[0] * moved[at] - parts[1] * moved[other]
        if_random = difference - mixture * shift
        if_by_class = difference + (1 - mixture) * shift
        errors = [
            [
                part * np.nan_to_num(of_all.reshape(-1, len(classes))[place])
                for part, place in zip(parts, (at, other), strict=True)
            ]
            for of_all in (rows[name].to_numpy() for name in STANDARD_ERRORS)
        ]
    learnt = stage.read_arrays(manifest.named("learnt-")[0])
    z = float(ndtri((1 + float(manifest.inputs["intervals"]["level"])) / 2))
    codes = list(class_codes(len(classes)))
    ends, pvalues = [], []
    files = [manifest.named(stem) for stem in SCENARIOS if manifest.named(stem)]
    for scenario, ((record,), apart, (se, other_se)) in enumerate(
        zip(files, (if_random, if_by_class), errors, strict=False)
    ):
        sums = stage.read_table(record, "group_sums")
        shared = _covariance(sums, (at, other), sizes, learnt, scenario)
        total = se[codes] ** 2 + other_se[codes] ** 2 - 2 * shared
        sd = np.sqrt(np.maximum(total, 0.0))
        if len(sd) == 1:
            sd = np.repeat(sd, 2)
        ends += [apart - z * sd, apart + z * sd]
        with np.errstate(divide="ignore", invalid="ignore"):
            pvalue = erfc(np.abs(apart) / (np.sqrt(2) * sd))
        # NaN: both are known exactly, and equal.
        pvalues.append(np.where(np.isnan(pvalue), 1.0, pvalue))
    lower, upper = np.min(ends, axis=0), np.max(ends, axis=0)
    return pa.table(
        {
            "class_name": classes,
            "first": shares[0],
            "second": shares[1],
            "difference": difference,
            "se": (upper - lower) / (2 * z),
            "lower": np.maximum(lower, -1.0),
            "upper": np.minimum(upper, 1.0),
            "pvalue": np.max(pvalues, axis=0),
        }
    )


def _find(
    table: pa.Table, n_classes: int, name: str, where: str
) -> tuple[int, pa.Table]:
    """Place and rows of a community that has an estimate; its name is text."""
    names = table["community"].combine_chunks()[::n_classes].cast(pa.string())
    place = int(pc.index(names, name).as_py())
    if place < 0:
        raise SettingsError(
            f"there is no community {name!r} in {where}: see the column community of "
            "prevalence.parquet"
        )
    rows = table.slice(place * n_classes, n_classes)
    if rows["quality"][0].as_py() == SUPPRESSED:
        reason = rows["note"][0].as_py().removeprefix("suppressed: ")
        raise SettingsError(
            f"community {name!r} of {where} is suppressed ({reason}): set "
            "disclosure.min_size lower and run again, or choose another community"
        )
    if rows["prevalence"].null_count:
        raise SettingsError(
            f"community {name!r} of {where} has no estimate to compare: "
            "see the column note of prevalence.parquet"
        )
    return place, rows


def _covariance(
    sums: pa.Table,
    places: tuple[int, int],
    sizes: list[float],
    learnt: dict[str, Floats],
    scenario: int,
) -> Floats:
    """Covariance of the two estimates, shape (K,)."""
    tilt, of_all, inflation = Tilt.from_arrays(learnt), learnt["shared"], 1.0
    if tilt is not None and (tilt.alone or scenario == 1):
        inflation, of_all = tilt.inflation**2, tilt.shared(of_all)
    total = np.zeros((2, len(of_all)))
    off = np.zeros((2, *learnt["labelled"].shape))
    for each, place in enumerate(places):
        rows = sums.filter(pc.equal(sums["community"], place))
        flat = rows["weights"].combine_chunks().flatten().to_numpy()
        weights = flat.reshape(-1, len(of_all)).astype(np.float64)
        # The groups of each partition add up to all members.
        total[each] = weights.sum(axis=0) / int(learnt["partitions"])
        off[each] = -learnt["labelled"] * total[each]
        off[each, rows["group"].to_numpy()] += weights
    shared = (off[0] * off[1] * learnt["variances"]).sum(axis=0)
    shared += total[0] * total[1] * of_all
    return np.asarray(inflation * shared / (sizes[0] * sizes[1]))
