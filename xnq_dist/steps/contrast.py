"""The difference of two communities' prevalence, with its interval.

The errors of two estimates by `auto` are not independent: both communities may be in
the same groups of the graph, and all share the calibration. The stage ``quantify``
keeps the parts of their covariance (see `auto`): sums of f (1 - f) by community and
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
    learnt = stage.read_arrays(manifest.named("learnt-")[0])
    z = float(ndtri((1 + float(manifest.inputs["intervals"]["level"])) / 2))
    codes = list(class_codes(len(classes)))
    published = one["se"].to_numpy()[codes] ** 2 + two["se"].to_numpy()[codes] ** 2
    ends, pvalues = [], []
    files = [manifest.named(stem) for stem in SCENARIOS if manifest.named(stem)]
    for scenario, ((record,), apart) in enumerate(
        zip(files, (if_random, if_by_class), strict=False)
    ):
        sums = stage.read_table(record, "group_sums")
        both = _covariances(sums, (at, other), sizes, learnt, scenario)
        alone = both[0, 0] + both[1, 1] if len(files) > 1 else published
        sd = np.sqrt(np.maximum(alone - 2 * both[0, 1], 0.0))
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


def _covariances(
    sums: pa.Table,
    places: tuple[int, int],
    sizes: list[float],
    learnt: dict[str, Floats],
    scenario: int,
) -> Floats:
    """Variances and covariance of the two estimates, shape (2, 2, K)."""
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
    shared = (off[:, None] * off * learnt["variances"]).sum(axis=2)
    shared += total[:, None] * total * of_all
    # The variance of each community's nodes, as if they were independent.
    shared[[0, 1], [0, 1]] += total
    return np.asarray(inflation * shared / np.outer(sizes, sizes)[:, :, None])
