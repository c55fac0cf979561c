"""Communities now and in earlier results: joined by name, compared, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xnq_dist.core.config import Settings
from xnq_dist.quantify.checks.changes import (
    Changes,
    SeedError,
    find_changes,
    seed_error,
)
from xnq_dist.report.compared import ordered, ranks
from xnq_dist.report.earlier import Earlier, OwnFacts
from xnq_dist.report.view import PrevalenceView

__all__ = ["Changed", "changed_rows", "compare_with"]

Floats = NDArray[np.float64]
NO_MATTER = (
    "seed",
    "cluster",
    "scratch",
    "anomalies",
    "fit",
    "partitions",
    "retention",
)
"""Settings that change no answer, or by as much as another seed does."""


@dataclass(frozen=True, eq=False)
class Changed:
    """A run's communities beside those of earlier results."""

    earlier: Earlier
    place: NDArray[np.int64]
    """Of each community of this run in the earlier view, -1: new, shape (K,)."""
    gone: NDArray[np.int64]
    """Places in the earlier view of communities that are no more."""
    before: tuple[Floats, Floats, Floats]
    """The earlier prevalence and interval in this run's order, NaN for new ones,
    shape (K, C) each."""
    changes: Changes
    seed: SeedError | None
    """Where nothing differs but the seed: what that makes of the last class."""

    @property
    def new(self) -> NDArray[np.int64]:
        """Places of the communities that were not there."""
        return np.flatnonzero(self.place < 0)

    @property
    def compared(self) -> NDArray[np.bool_]:
        """Communities whose last class could be compared, shape (K,)."""
        return np.asarray(~np.isnan(self.changes.qvalue[:, -1]))


def compare_with(
    earlier: Earlier, view: PrevalenceView, settings: Settings, own: OwnFacts
) -> Changed:
    """Join two runs by the communities' names and compare what is in both.

    Parameters
    ----------
    earlier
        Results of which `earlier.why_not` has nothing to say.
    view
        This run's.
    settings, own
        This run's.
    """
    now, then = _comparable(view.names, earlier.view.names)
    place = pc.fill_null(pc.index_in(now, value_set=then), -1).to_numpy()
    place = place.astype(np.int64)
    gone = np.flatnonzero(pc.is_null(pc.index_in(then, value_set=now)).to_numpy(False))
    columns = [earlier.view.classes.index(name) for name in view.classes]

    def joined(values: Floats) -> Floats:
        found = np.full((len(place), len(columns)), np.nan)
        both = place >= 0
        found[both] = values[place[both]][:, columns]
        return found

    p, low, high = earlier.view.estimates()
    before = joined(p), joined(low), joined(high)
    level = settings.intervals.level
    changes = find_changes(view.estimates(), before, level, earlier.level)
    seed = None
    if own.data and own.data == earlier.facts.data and _seed_alone(earlier, settings):
        p, low, high = (values[:, -1] for values in view.estimates())
        one, under, over = (values[:, -1] for values in before)
        seed = seed_error((p, low, high), (one, under, over), level)
    return Changed(earlier, place, gone, before, changes, seed)


def _comparable(now: pa.Array, then: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Names of one type: numbers and text that read alike are the same name."""
    if now.type == then.type:
        return now, then
    return now.cast(pa.string()), then.cast(pa.string())


def _seed_alone(earlier: Earlier, settings: Settings) -> bool:
    """Whether the two runs have other seeds and else the same settings."""
    now: Mapping[str, Any] = settings.model_dump(mode="json")
    then = earlier.settings
    keys = {*now, *then}.difference(NO_MATTER)
    return then.get("seed") != now["seed"] and all(
        now.get(key) == then.get(key) for key in keys
    )


def changed_rows(view: PrevalenceView, found: Changed, settings: Settings) -> pa.Table:
    """Rows of the table ``changes``.

    The largest effects first, then what could not be compared, new communities, and
    last those that are gone.
    """
    now = _rows_now(view, found, settings)
    gone = _rows_gone(view, found, now.schema)
    if now.schema.field("community").type != gone.schema.field("community").type:
        now, gone = (
            table.set_column(0, "community", table["community"].cast(pa.string()))
            for table in (now, gone)
        )
    return pa.concat_tables([now, gone])


def _rows_now(view: PrevalenceView, found: Changed, settings: Settings) -> pa.Table:
    changes, earlier = found.changes, found.earlier.view
    size = np.abs(changes.effect)
    communities, classes = (place.ravel() for place in np.indices(size.shape, np.int64))
    order = ordered(size.ravel(), view.n_nodes[communities])
    order = order[np.argsort(found.place[communities[order]] < 0, kind="stable")]
    at = communities[order], classes[order]
    place = found.place[at[0]]
    new = place < 0
    then = np.zeros(len(place), np.int64)
    then[~new] = earlier.n_nodes[place[~new]]
    rank = ranks(size, view.n_nodes)[at]
    q = changes.qvalue[at]
    return pa.table(
        {
            "community": view.texts(at[0]),
            "class": pa.array([view.classes[k] for k in at[1].tolist()], pa.string()),
            "status": pa.array(np.where(new, "new", "both").tolist(), pa.string()),
            "n_nodes": view.n_nodes[at[0]],
            "n_nodes_before": pa.array(then, mask=new),
            "prevalence": _column(view.prevalence[at]),
            "before": _column(found.before[0][at]),
            "effect": _column(changes.effect[at]),
            "lower": _column(changes.lower[at]),
            "upper": _column(changes.upper[at]),
            "pvalue": _column(changes.pvalue[at]),
            "qvalue": _column(q),
            "changed": pa.array(q <= settings.anomalies.rate, mask=np.isnan(q)),
            "rank_effect": pa.array(rank, mask=rank == 0),
        }
    )


def _rows_gone(view: PrevalenceView, found: Changed, like: pa.Schema) -> pa.Table:
    earlier = found.earlier.view
    places = np.repeat(found.gone, len(view.classes))
    columns = [earlier.classes.index(name) for name in view.classes]
    known: dict[str, Any] = {
        "community": earlier.texts(places),
        "class": pa.array(list(view.classes) * len(found.gone), pa.string()),
        "status": pa.array(["gone"] * len(places), pa.string()),
        "n_nodes_before": earlier.n_nodes[places],
        "before": _column(earlier.prevalence[found.gone][:, columns].ravel()),
    }
    return pa.table(
        {
            field.name: known.get(field.name, pa.nulls(len(places), field.type))
            for field in like
        }
    )


def _column(values: Floats) -> pa.Array:
    """Values with null for NaN."""
    return pa.array(values, mask=np.isnan(values))
