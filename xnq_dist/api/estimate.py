"""Estimates prevalence from tables, arrays or a graph in memory."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from xnq_dist.api.frames import Tables, tables_of
from xnq_dist.api.result import PrevalenceResult
from xnq_dist.core.config import merged, nested, validate_settings
from xnq_dist.core.errors import XnqError
from xnq_dist.core.leftovers import owned_name
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.settings import Settings
from xnq_dist.jobs import run_all
from xnq_dist.monitor.progress import watching

__all__ = ["estimate_prevalence", "run_tables", "settings_of", "temporary_folder"]


def estimate_prevalence(
    nodes: Any,
    edges: Any = None,
    memberships: Any = None,
    *,
    labels: Any = None,
    features: Any = None,
    scores: Any = None,
    out: str | Path | None = None,
    progress: Progress = silent,
    overwrite: bool = False,
    **settings: Any,
) -> PrevalenceResult:
    """Estimate the share of each class in every community of a graph.

    Parameters
    ----------
    nodes
        The node table: a pandas or Polars DataFrame, an Arrow table, any object with
        Arrow's C stream interface, or a path. Or the complete graph: a networkx graph,
        a PyTorch Geometric ``Data``, or a square adjacency matrix (SciPy sparse or
        NumPy), whose nodes are numbered from 0.
    edges
        The edge table, in the same forms as the node table, or an adjacency matrix in
        the order of its rows. None when `nodes` is the complete graph.
    memberships
        A table; a mapping of communities to their node ids; a list of lists of node
        ids; an indicator matrix, shape (communities, nodes); or an array with the
        community of each node. None: communities are detected, unless `communities` is
        set otherwise.
    labels
        One label a node, None or NaN where it is unlabelled; replaces the label column.
        A pandas object is matched by its index: node ids, certainly if it is named like
        their column, or the index of `nodes`.
    features
        Feature vectors, shape (nodes, features), used instead of all columns of
        `nodes`.
    scores
        Another model's probabilities or scores: a mapping of names to one number a
        node, NaN where there is none, or names of columns of the node table.
    out
        Run directory that stays. A later call with the same `out` repeats only what
        changed. A label plan reads the memberships again: for one, give their path.
        None: a temporary directory, which is deleted together with the result.
    progress
        Called with (what, done, total).
    overwrite
        Compute everything again, also in a run directory of another graph.
    **settings
        Settings by name. Those of a section follow two underscores or are a mapping:
        ``columns__label="party"``, ``reservoir={"dim": 256}``. Messages name the first
        of these ``columns.label``. Only underscores reach
        the sections ``labels``, ``features`` and ``memberships``:
        ``labels__drawn="random"``.

    Returns
    -------
    PrevalenceResult
        Estimates, anomalies and posteriors as tables.

    Raises
    ------
    InputError
        When a table or an object cannot be used; the message says what to change.
    SettingsError
        When a setting is unknown or cannot be used.
    DoesNotFitError
        When memory or disk are not enough.

    Notes
    -----
    A run that fits in this process's memory is done here. Larger ones get worker
    processes, which import the calling program again: put the call under
    ``if __name__ == "__main__":``. ``cluster={"kind": ...}`` decides otherwise.

    Examples
    --------
    >>> result = estimate_prevalence(nodes, edges, followers)  # doctest: +SKIP
    >>> result.to_pandas()  # doctest: +SKIP
    """
    columns = settings_of(settings).columns
    tables = tables_of(nodes, edges, memberships, labels, features, columns, scores)
    return run_tables(tables, settings, out, progress, overwrite)


def run_tables(
    tables: Tables,
    settings: Mapping[str, Any],
    out: str | Path | None = None,
    progress: Progress = silent,
    overwrite: bool = False,
) -> PrevalenceResult:
    """The results for tables; arguments and errors as for `estimate_prevalence`."""
    used = settings_of({**tables.implied, **settings})
    with temporary_folder() as folder:
        sources = tables.write(Path(folder))
        run = str(out) if out is not None else f"{folder}/run"
        with watching(progress):
            run_all(sources, run, used, overwrite)
        return PrevalenceResult(run, folder)


@contextmanager
def temporary_folder() -> Iterator[str]:
    """A folder that is deleted if the block fails; the error does not name it.

    If this process is killed, a later run deletes it.
    """
    folder = f"{tempfile.gettempdir()}/{owned_name()}"
    Path(folder).mkdir(0o700)
    try:
        yield folder
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, XnqError):
            error.args = (str(error).replace(f"{folder}/", ""),)
        raise


def settings_of(values: Mapping[str, Any]) -> Settings:
    """Settings from keyword arguments.

    Parameters
    ----------
    values
        Settings by name; ``section__name`` or ``section.name`` stands for a name
        in a section. Later ones replace earlier ones.

    Raises
    ------
    SettingsError
        For unknown settings and values out of range, all in one message.
    """
    layers = (nested(key.replace("__", "."), value) for key, value in values.items())
    return validate_settings(merged(*layers))
