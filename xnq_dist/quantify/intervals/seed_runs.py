"""What another reservoir would have said, from runs that differ in their seed alone.

An interval says how far the truth may be from one run's answer; labels calibrate the
posteriors of that one reservoir. Where a quantifier leans on posteriors more than its
own assumption vouches for, another seed can answer beyond the interval. Runs of the
same tables with other seeds show by how much: the variance between them is added to
that of the interval.

With k other runs a community has k degrees of freedom of its own, too few to stand
alone: its variance is held back by `PSEUDO` at the mean over communities of about its
size.
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
"""Degrees of freedom at the mean over communities of about the same size."""
MAY_DIFFER = ("posteriors", "prior", "intervals", "fit", "quality", "seed_runs")
"""Inputs of the stage that follow from the seed, or do not change the prevalence."""


def between_runs(own: Floats, others: Floats, estimated: Ints, part: Floats) -> Floats:
    """Variance of one run's prevalence over seeds, shape (S, C).

    `own` and `others`, (k, S, C), are of this run and of k with other seeds; NaN rows
    are passed over. `part` is that of the members whose class is estimated among those
    that the prevalence is of: what is counted does not vary.
    """
    runs = np.concatenate([own[None], others])
    known = ~np.isnan(runs).any(axis=(0, 2)) & (estimated > 0)
    found = np.zeros_like(own)
    scale = np.where(known, part, 1.0)[:, None]
    seen = np.where(known[:, None], runs.var(axis=0, ddof=1), 0.0) / scale**2
    classes = np.frexp(np.maximum(estimated, 1).astype(np.float64))[1]
    for size in np.unique(classes[known]).tolist():
        same = known & (classes == size)
        mean = seen[same].mean(axis=0)
        k = len(others)
        found[same] = (k * seen[same] + PSEUDO * mean) / (k + PSEUDO)
    return np.asarray(found * np.where(known, part, 0.0)[:, None] ** 2)


def widened(
    arrays: dict[str, NDArray[Any]], variance: Floats, level: float, exclude: bool
) -> dict[str, NDArray[Any]]:
    """Answers with the variance added to that of each side of their intervals.

    `exclude`: the prevalence is of unlabelled members alone.
    """
    z = float(ndtri((1 + level) / 2))
    middle = arrays["prevalence"]
    weighted = "weight" in arrays
    whole, part, of_class = "n_nodes", "n_estimated", "known"
    if weighted:
        whole, part, of_class = "weight", "weight_estimated", "known_weight"
    known = np.zeros_like(arrays[of_class]) if exclude else arrays[of_class]
    members = arrays[part if exclude else whole]
    count = np.where(members > 0, members, 1)[:, None].astype(np.float64)
    least = known / count
    most = 1.0 - (known.sum(axis=1, keepdims=True) - known) / count
    extra = z * z * variance
    down = np.sqrt((middle - arrays["lower"]) ** 2 + extra)
    up = np.sqrt((arrays["upper"] - middle) ** 2 + extra)
    lower, upper = middle - down, middle + up
    if not weighted:
        # Ends are counts of members: what is not widened keeps its bits.
        lower, upper = (np.rint(end * count) / count for end in (lower, upper))
    lower, upper = np.maximum(lower, least), np.minimum(upper, most)
    moved = extra > 0
    return {
        **arrays,
        "sd": np.sqrt(arrays["sd"] ** 2 + variance),  # NaN stays NaN
        "lower": np.where(moved, np.minimum(lower, arrays["lower"]), arrays["lower"]),
        "upper": np.where(moved, np.maximum(upper, arrays["upper"]), arrays["upper"]),
    }


def check_seed_runs(
    paths: Sequence[str],
    own: str = "",
    graph: Manifest | None = None,
    inputs: dict[str, Any] | None = None,
) -> list[str]:
    """Fingerprints of what the named runs have published.

    Parameters
    ----------
    paths
        Run directories: `intervals.seed_runs`.
    own
        This run's directory; empty while it is not known.
    graph
        This run's stage ``graph``; None while there is none.
    inputs
        What its stage ``quantify`` is made from; None while that is not known.

    Raises
    ------
    SettingsError
        When one is this run, is not whole, or differs in more than its seed or not
        even in that.
    """
    found: list[str] = []
    for path in paths:
        where = f"intervals.seed_runs: {path}"
        run = RunDirectory(path)
        if own and Folder.of(path).uri == own:
            raise SettingsError(
                f"{where} is this run's own directory: name runs with another seed"
            )
        try:
            stages = [run.stage(name).manifest() for name in ("graph", "quantify")]
            published = Published(run).current()
        except (XnqError, OSError) as error:
            raise SettingsError(f"{where} cannot be read ({error})") from error
        their_graph, theirs = stages
        if their_graph is None or theirs is None or published is None:
            raise SettingsError(
                f"{where} is not a whole run with published results: finish it, or "
                "leave it out"
            )
        if graph is not None and their_graph.fingerprint != graph.fingerprint:
            raise SettingsError(
                f"{where} is of another graph (or was read or divided otherwise): name "
                "runs of the same tables that differ in nothing but their seed"
            )
        if inputs is not None:
            _check_inputs(where, inputs, theirs.inputs)
        if theirs.fingerprint in found:
            raise SettingsError(f"{where} says what another of them says: name it once")
        found.append(theirs.fingerprint)
    return found


def _check_inputs(where: str, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    for name in sorted({*ours, *theirs} - {*MAY_DIFFER}):
        if _bare(name, ours) != _bare(name, theirs):
            raise SettingsError(
                f"{where} differs in more than its seed ({name}); communities that "
                "were detected differ, too: name the same ones for all runs with "
                "--memberships"
            )
    if theirs.get("posteriors") == ours["posteriors"]:
        raise SettingsError(
            f"{where} has the posteriors of this run: name runs with another seed"
        )


def _bare(name: str, inputs: dict[str, Any]) -> Any:
    """An input of the stage; that of `auto` holds the seed of its own detection."""
    value = inputs.get(name)
    if name == "auto" and isinstance(value, dict):
        return {key: each for key, each in value.items() if key != "seed"}
    return value


def read_seed_runs(
    paths: Sequence[str], names: pa.Array, classes: Sequence[Any]
) -> Floats:
    """Prevalence that the runs have published, shape (k, S, C).

    A run with other communities or classes is a `SettingsError`.
    """
    wanted = [str(name) for name in classes]
    found = np.empty((len(paths), len(names), len(wanted)))
    for run, path in zip(found, paths, strict=True):
        stage = RunDirectory(path).stage("quantify")
        manifest = stage.manifest()
        record = manifest.named("prevalence")[0] if manifest else None
        columns = ["community", "class", "prevalence"]
        table = stage.read_table(record, "prevalence", columns) if record else None
        rows = 0 if table is None else table.num_rows
        same = table is not None and rows == run.size
        if same and table is not None:
            theirs = table["community"].combine_chunks()
            said = table["class"].to_pylist()[: len(wanted)]
            ours = names.cast(theirs.type)
            same = said == wanted and theirs[:: len(wanted)].equals(ours)
            values = table["prevalence"].to_numpy()
        if not same:
            raise SettingsError(
                f"intervals.seed_runs: {path} has other communities or classes than "
                "this run: name runs that differ in nothing but their seed"
            )
        run[:] = values.reshape(run.shape)
    return found
