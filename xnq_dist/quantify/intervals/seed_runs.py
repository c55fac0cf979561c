"""The variance between random reservoirs, from runs that differ only in their seed.

The interval of one run is for its reservoir, whose posteriors the labels calibrate.
Another seed can give an estimate outside the interval where a quantifier depends
strongly on posteriors. Runs of the same tables with other seeds measure this: the
variance between the runs is added to that of the interval.

With k other runs a community has k degrees of freedom, too few for an estimate of its
own: its variance is shrunk, with the weight `PSEUDO`, to the mean over communities of
about its size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import ndtri

from xnq_dist.core.arrays import Floats, Ints
from xnq_dist.core.errors import SettingsError, XnqError
from xnq_dist.core.store import Folder, Manifest, Published, RunDirectory

__all__ = ["between_runs", "check_seed_runs", "read_seed_runs", "widened"]


PSEUDO = 4.0
"""Weight of the mean over communities of about the same size, in degrees of freedom."""
MAY_DIFFER = ("posteriors", "prior", "intervals", "fit", "quality", "seed_runs")
"""Inputs of the stage that depend on the seed, or do not change the prevalence."""


def between_runs(ours: Floats, others: Floats, estimated: Ints, part: Floats) -> Floats:
    """Variance of one run's prevalence over seeds, shape (S, C).

    `ours`, (S, C), and `others`, (k, S, C), are the prevalence of this run and of k
    runs with other seeds; rows with NaN are skipped. `part` is the share of the members
    whose class is estimated: counted labels do not vary.
    """
    runs = np.concatenate([ours[None], others])
    known = ~np.isnan(runs).any(axis=(0, 2)) & (estimated > 0)
    variance = np.zeros_like(ours)
    scale = np.where(known, part, 1.0)[:, None]
    observed = np.where(known[:, None], runs.var(axis=0, ddof=1), 0.0) / scale**2
    classes = np.frexp(np.maximum(estimated, 1).astype(np.float64))[1]
    for size in np.unique(classes[known]).tolist():
        same = known & (classes == size)
        mean = observed[same].mean(axis=0)
        k = len(others)
        variance[same] = (k * observed[same] + PSEUDO * mean) / (k + PSEUDO)
    return np.asarray(variance * np.where(known, part, 0.0)[:, None] ** 2)


def widened(
    arrays: dict[str, NDArray[Any]], variance: Floats, level: float, exclude: bool
) -> dict[str, NDArray[Any]]:
    """Add a variance to both sides of the intervals; return the arrays of the batch.

    `exclude`: the prevalence is of unlabelled members only.
    """
    z = float(ndtri((1 + level) / 2))
    middle = arrays["prevalence"]
    weighted = "weight" in arrays
    total, part, of_class = "n_nodes", "n_estimated", "known"
    if weighted:
        total, part, of_class = "weight", "weight_estimated", "known_weight"
    known = np.zeros_like(arrays[of_class]) if exclude else arrays[of_class]
    members = arrays[part if exclude else total]
    count = np.where(members > 0, members, 1)[:, None].astype(np.float64)
    minimum = known / count
    maximum = 1.0 - (known.sum(axis=1, keepdims=True) - known) / count
    extra = z * z * variance
    down = np.sqrt((middle - arrays["lower"]) ** 2 + extra)
    up = np.sqrt((arrays["upper"] - middle) ** 2 + extra)
    lower, upper = middle - down, middle + up
    if not weighted:
        # Ends are counts of members.
        lower, upper = (np.rint(end * count) / count for end in (lower, upper))
    lower, upper = np.maximum(lower, minimum), np.minimum(upper, maximum)
    moved = extra > 0
    return {
        **arrays,
        "sd": np.sqrt(arrays["sd"] ** 2 + variance),  # NaN stays NaN
        "lower": np.where(moved, np.minimum(lower, arrays["lower"]), arrays["lower"]),
        "upper": np.where(moved, np.maximum(upper, arrays["upper"]), arrays["upper"]),
    }


def check_seed_runs(
    paths: Sequence[str],
    current: str = "",
    graph: Manifest | None = None,
    inputs: dict[str, Any] | None = None,
) -> list[str]:
    """Check the other runs; return the fingerprints of their published results.

    Parameters
    ----------
    paths
        Run directories: `intervals.seed_runs`.
    current
        This run's directory; empty while it is not known.
    graph
        This run's stage ``graph``; None while there is none.
    inputs
        Inputs of this run's stage ``quantify``; None while they are not known.

    Raises
    ------
    SettingsError
        When a directory is that of this run, is not a complete run, is listed twice,
        has this run's seed, or differs from this run in more than the seed.
    """
    fingerprints: list[str] = []
    for path in paths:
        where = f"intervals.seed_runs: {path}"
        run = RunDirectory(path)
        if current and Folder.of(path).uri == current:
            raise SettingsError(
                f"{where} is this run's own directory: name runs with another seed"
            )
        try:
            stages = [run.stage(name).manifest() for name in ("graph", "quantify")]
            published = Published(run).current()
        except (XnqError, OSError) as error:
            raise SettingsError(
                f"{where} cannot be read ({error}): correct the path, or leave it out"
            ) from error
        their_graph, theirs = stages
        if their_graph is None or theirs is None or published is None:
            raise SettingsError(
                f"{where} is not a complete run with published results: finish it, or "
                "leave it out"
            )
        if graph is not None and their_graph.fingerprint != graph.fingerprint:
            raise SettingsError(
                f"{where} has another graph (or was read or partitioned otherwise): "
                "name runs of the same tables that differ only in their seed"
            )
        if inputs is not None:
            _check_inputs(where, inputs, theirs.inputs)
        if theirs.fingerprint in fingerprints:
            raise SettingsError(f"{where} equals another of these runs: name it once")
        fingerprints.append(theirs.fingerprint)
    return fingerprints


def _check_inputs(where: str, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    for name in sorted({*ours, *theirs} - {*MAY_DIFFER}):
        if _bare(name, ours) != _bare(name, theirs):
            raise SettingsError(
                f"{where} differs in more than its seed ({name}): use the same tables "
                "and settings, and --memberships, as detection depends on the seed"
            )
    if theirs.get("posteriors") == ours["posteriors"]:
        raise SettingsError(
            f"{where} has the posteriors of this run: name runs with another seed"
        )


def _bare(name: str, inputs: dict[str, Any]) -> Any:
    """Return an input of the stage; without the seed that `auto` uses for groups."""
    value = inputs.get(name)
    if name == "auto" and isinstance(value, dict):
        return {key: each for key, each in value.items() if key != "seed"}
    return value


def read_seed_runs(
    paths: Sequence[str], names: pa.Array, classes: Sequence[Any]
) -> Floats:
    """Read the prevalence that the runs have published, shape (k, S, C).

    A run with other communities or classes is a `SettingsError`.
    """
    expected = [str(name) for name in classes]
    prevalence = np.empty((len(paths), len(names), len(expected)))
    for run, path in zip(prevalence, paths, strict=True):
        stage = RunDirectory(path).stage("quantify")
        manifest = stage.manifest()
        record = manifest.named("prevalence")[0] if manifest else None
        columns = ["community", "class", "prevalence"]
        table = stage.read_table(record, "prevalence", columns) if record else None
        rows = 0 if table is None else table.num_rows
        same = table is not None and rows == run.size
        if same and table is not None:
            theirs = table["community"].combine_chunks()
            their_classes = table["class"].slice(0, len(expected)).to_pylist()
            ours = names.cast(theirs.type)
            same = [str(name) for name in their_classes] == expected
            same = same and theirs[:: len(expected)].equals(ours)
            values = table["prevalence"].to_numpy()
        if not same:
            raise SettingsError(
                f"intervals.seed_runs: {path} has other communities or classes than "
                "this run: name runs that differ only in their seed"
            )
        run[:] = values.reshape(run.shape)
    return prevalence
