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
    rows = stage.read_table(manifest.named("prevalence-")[0], "prevalence")
    width = len(run.complete("labels").facts["classes"])
    places = [_place(rows, width, name, run.uri) for name in (first, second)]
    about = "n_estimated" if manifest.inputs["labelled"] == "exclude" else "n_nodes"

    def values(table: pa.Table, name: str) -> Floats:
        """A column at both communities, shape (2, C); 0 for null."""
        column = pc.fill_null(table[name], 0).to_numpy().astype(np.float64)
        return np.asarray(column.reshape(-1, width)[places])

    size = values(rows, about)[:, :1]
    shares = values(rows, "prevalence")
    difference = shares[0] - shares[1]
    # In each scenario: the difference, standard errors, and sums by group.
    scenarios = [(difference, values(rows, "se"), "sums-")]
    if manifest.named("scenarios-"):
        mixture = float(manifest.facts["labels"]["tilted"])
        both = stage.read_table(manifest.named("scenarios-")[0], "scenarios")
        part = values(rows, "n_estimated") / size
        moved = part * (values(both, "if_by_class") - values(both, "if_random"))
        shift = moved[0] - moved[1]
        scenarios = [
            (difference - mixture * shift, part * values(both, "se_random"), "sums-"),
            (
                difference + (1 - mixture) * shift,
                part * values(both, "se_by_class"),
                "tilted-",
            ),
        ]
    learnt = stage.read_arrays(manifest.named("learnt-")[0])
    z = float(ndtri((1 + float(manifest.inputs["intervals"]["level"])) / 2))
    codes = list(class_codes(width))
    ends, pvalues = [], []
    for apart, se, stem in scenarios:
        sums = stage.read_table(manifest.named(stem)[0], "group_sums")
        shared = _covariance(sums, places, learnt, stem == "tilted-") / size.prod()
        variance = (se[:, codes] ** 2).sum(axis=0) - 2 * shared
        sd = np.broadcast_to(np.sqrt(np.maximum(variance, 0.0)), width)
        ends += [apart - z * sd, apart + z * sd]
        with np.errstate(divide="ignore", invalid="ignore"):
            pvalue = erfc(np.abs(apart) / (np.sqrt(2) * sd))
        # NaN: both are known exactly, and equal.
        pvalues.append(np.nan_to_num(pvalue, nan=1.0))
    lower, upper = np.min(ends, axis=0), np.max(ends, axis=0)
    return pa.table(
        {
            "class_name": [str(name) for name in rows["class"][:width].to_pylist()],
            "first": shares[0],
            "second": shares[1],
            "difference": difference,
            "se": (upper - lower) / (2 * z),
            "lower": np.maximum(lower, -1.0),
            "upper": np.minimum(upper, 1.0),
            "pvalue": np.max(pvalues, axis=0),
        }
    )


def _place(table: pa.Table, width: int, name: str, where: str) -> int:
    """Place of a community that has an estimate; its name is text."""
    names = table["community"].combine_chunks()[::width].cast(pa.string())
    place = int(pc.index(names, name).as_py())
    if place < 0:
        raise SettingsError(
            f"there is no community {name!r} in {where}: see the column community of "
            "prevalence.parquet"
        )
    row = table.slice(place * width, 1).to_pylist()[0]
    if row["quality"] == SUPPRESSED:
        reason = row["note"].removeprefix("suppressed: ")
        raise SettingsError(
            f"community {name!r} of {where} is suppressed ({reason}): set "
            "disclosure.min_size lower and run again, or choose another community"
        )
    if row["prevalence"] is None:
        raise SettingsError(
            f"community {name!r} of {where} has no estimate to compare: "
            "see the column note of prevalence.parquet"
        )
    return place


def _covariance(
    sums: pa.Table, places: list[int], learnt: dict[str, Floats], tilted: bool
) -> Floats:
    """Covariance of the sums over two communities, shape (K,)."""
    tilt, of_all, inflation = Tilt.from_arrays(learnt), learnt["shared"], 1.0
    if tilt is not None and (tilt.alone or tilted):
        inflation, of_all = tilt.inflation**2, tilt.shared(of_all)
    by_group = np.zeros((2, *learnt["labelled"].shape))
    for weights, place in zip(by_group, places, strict=True):
        rows = sums.filter(pc.equal(sums["community"], place))
        flat = rows["weights"].combine_chunks().flatten().to_numpy()
        weights[rows["group"].to_numpy()] = flat.reshape(-1, len(of_all))
    # The groups of each partition add up to all members.
    total = by_group.sum(axis=1) / int(learnt["partitions"])
    off = by_group - learnt["labelled"] * total[:, None]
    shared = (off[0] * off[1] * learnt["variances"]).sum(axis=0)
    return np.asarray(inflation * (shared + total[0] * total[1] * of_all))
