"""Changes since earlier results: communities joined by name and compared."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats
from xnq_dist.core.schemas import class_column
from xnq_dist.core.settings import Settings
from xnq_dist.quantify.checks.changes import (
    Changes,
    Counts,
    find_changes,
    reveals,
)
from xnq_dist.report.compared import ordered, ranks
from xnq_dist.report.earlier import Earlier
from xnq_dist.report.view import PrevalenceView

__all__ = ["Changed", "blank", "changed_rows", "compare_with"]

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Changed:
    """A run's communities compared with those of earlier results."""

    earlier: Earlier
    place: NDArray[np.int64]
    """Row of each community in the earlier view, -1 for new communities, shape (K,)."""
    gone: NDArray[np.int64]
    """Rows in the earlier view of communities that this run does not have."""
    before: tuple[Floats, Floats, Floats]
    """Earlier prevalence and ends of its interval, NaN for new communities, shape
    (K, C) each."""
    changes: Changes

    @property
    def new(self) -> NDArray[np.int64]:
        """Rows of the communities that the earlier results do not have."""
        return np.flatnonzero(self.place < 0)

    @property
    def compared(self) -> NDArray[np.bool_]:
        """Communities whose last class could be compared, shape (K,)."""
        return np.asarray(~np.isnan(self.changes.qvalue[:, -1]))


def compare_with(earlier: Earlier, view: PrevalenceView, settings: Settings) -> Changed:
    """Join two runs by community name and compare the communities that both have.

    Parameters
    ----------
    earlier
        Earlier results for which `earlier.why_not` returns an empty text.
    view, settings
        Prevalence table and settings of this run.
    """
    names, others = _comparable(view.names, earlier.view.names)
    place = pc.fill_null(pc.index_in(names, value_set=others), -1).to_numpy()
    place = place.astype(np.int64)
    is_gone = pc.is_null(pc.index_in(others, value_set=names))
    gone = np.flatnonzero(is_gone.to_numpy(False))
    columns = [earlier.view.classes.index(name) for name in view.classes]

    # Earlier values of communities that are suppressed now are not compared.
    both = (place >= 0) & ~view.suppressed

    def joined(values: Floats) -> Floats:
        result = np.full((len(place), len(columns)), np.nan)
        result[both] = values[place[both]][:, columns]
        return result

    def sizes(counts: NDArray[np.int64]) -> NDArray[np.int64]:
        result = np.zeros(len(place), np.int64)
        result[both] = counts[place[both]]
        return result

    before = earlier.view
    p, low, high, se = map(joined, (*before.estimates(), before.se))
    level = settings.intervals.level
    now = Counts(view.n_nodes, view.n_labelled, view.n_estimated, view.se)
    then = Counts(
        sizes(before.n_nodes), sizes(before.n_labelled), sizes(before.n_estimated), se
    )
    changes = find_changes(
        view.estimates(), (p, low, high), level, earlier.level, (now, then)
    )
    noise = np.nan_to_num(changes.noise).min(axis=1, initial=1.0)
    minimum = settings.disclosure.min_size
    hidden = both & reveals(noise, now.members, then.members, minimum)
    p, low, high = (np.where(hidden[:, None], np.nan, ends) for ends in (p, low, high))
    return Changed(earlier, place, gone, (p, low, high), blank(changes, hidden))


def blank(values: T, gone: NDArray[np.bool_]) -> T:
    """The dataclass with NaN in the rows of its matrices."""
    empty: dict[str, Any] = {}
    for field in fields(values):  # type: ignore[arg-type]
        matrix = getattr(values, field.name)
        if isinstance(matrix, np.ndarray) and matrix.ndim == 2:
            empty[field.name] = np.where(gone[:, None], np.nan, matrix)
    return replace(values, **empty)  # type: ignore[type-var]


def _comparable(now: pa.Array, then: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Names as the same type: a number and its text are the same name."""
    if now.type == then.type:
        return now, then
    return now.cast(pa.string()), then.cast(pa.string())


def changed_rows(
    view: PrevalenceView, changed: Changed, settings: Settings
) -> pa.Table:
    """Rows of the table ``changes``.

    The largest effects come first, then communities that could not be compared, new
    communities, and last those that are gone.
    """
    now = _rows_now(view, changed, settings)
    gone = _rows_gone(view, changed, now.schema)
    if now.schema.field("community").type != gone.schema.field("community").type:
        now, gone = (
            table.set_column(0, "community", table["community"].cast(pa.string()))
            for table in (now, gone)
        )
    return pa.concat_tables([now, gone])


def _rows_now(view: PrevalenceView, changed: Changed, settings: Settings) -> pa.Table:
    changes, earlier = changed.changes, changed.earlier.view
    size = np.abs(changes.effect)
    communities, classes = (place.ravel() for place in np.indices(size.shape, np.int64))
    order = ordered(size.ravel(), view.n_nodes[communities])
    order = order[np.argsort(changed.place[communities[order]] < 0, kind="stable")]
    at = communities[order], classes[order]
    place = changed.place[at[0]]
    new = place < 0
    then = np.zeros(len(place), np.int64)
    then[~new] = earlier.n_nodes[place[~new]]
    rank = ranks(size, view.n_nodes)[at]
    q = changes.qvalue[at]
    return pa.table(
        {
            "community": view.texts(at[0]),
            "class": view.labels.take(pa.array(at[1])),
            "status": pa.array(np.where(new, "new", "both").tolist(), pa.string()),
            "n_nodes": view.n_nodes[at[0]],
            "n_nodes_before": pa.array(then, mask=new),
            "prevalence": _column(view.prevalence[at]),
            "before": _column(changed.before[0][at]),
            "effect": _column(changes.effect[at]),
            "lower": _column(changes.lower[at]),
            "upper": _column(changes.upper[at]),
            "pvalue": _column(changes.pvalue[at]),
            "qvalue": _column(q),
            "changed": pa.array(q <= settings.anomalies.rate, mask=np.isnan(q)),
            "rank_effect": pa.array(rank, mask=rank == 0),
        }
    )


def _rows_gone(view: PrevalenceView, changed: Changed, schema: pa.Schema) -> pa.Table:
    earlier, gone = changed.earlier.view, changed.gone
    places = np.repeat(gone, len(view.classes))
    columns = [earlier.classes.index(name) for name in view.classes]
    known: dict[str, Any] = {
        "community": earlier.texts(places),
        "class": class_column(view.labels, len(gone)),
        "status": pa.array(["gone"] * len(places), pa.string()),
        "n_nodes_before": earlier.n_nodes[places],
        "before": _column(earlier.prevalence[gone][:, columns].ravel()),
    }
    return pa.table(
        {
            field.name: known.get(field.name, pa.nulls(len(places), field.type))
            for field in schema
        }
    )


def _column(values: Floats) -> pa.Array:
    """Values as an Arrow array with null for NaN."""
    return pa.array(values, mask=np.isnan(values))
