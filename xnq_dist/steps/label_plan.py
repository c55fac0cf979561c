"""Which nodes of a finished run to label next, as a probability sample with weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from xnq_dist.core.arrays import Floats, Ints
from xnq_dist.core.errors import SettingsError
from xnq_dist.core.schemas import conform
from xnq_dist.quantify.batches import community_ids
from xnq_dist.quantify.quality import z_value
from xnq_dist.steps.allocation import Strata, allocate, choose, proportional
from xnq_dist.steps.contrast import Finished

__all__ = ["LabelPlan", "Predicted", "plan_labels", "plan_writer"]

MAX_COMMUNITIES = 1000


@dataclass(frozen=True)
class Predicted:
    """Predicted intervals of one target community.

    Predictions are for labels that are a random or a planned sample and declared so
    (`labels.drawn`). The published interval is wider where the labels may have been
    chosen by class, because it then contains the estimates of both scenarios.
    """

    community: str
    labels: float
    """Expected number of new labels."""
    published: float
    """Half-width of its widest class's published interval."""
    now: float
    """Half-width predicted from the run's labels, as if they were such a sample."""
    planned: float
    """Predicted half-width with the labels of the plan."""
    random: float
    """Predicted half-width with as many labels of a simple random sample."""


@dataclass(frozen=True, eq=False)
class LabelPlan:
    """Nodes to label, and the predicted intervals."""

    table: pa.Table
    """Schema ``label_plan``."""
    communities: list[Predicted]
    """Widest first."""
    unlabelled: int
    """Nodes that could be chosen."""


def plan_labels(
    location: str,
    budget: int,
    communities: list[str] | None = None,
    worst: int = 20,
    seed: int = 0,
) -> LabelPlan:
    """Choose the nodes to label next.

    Parameters
    ----------
    location
        The run directory; its memberships table must be unchanged.
    budget
        Number of nodes to label.
    communities
        Names of the communities whose intervals are to be narrowed, as text; None:
        those with the widest intervals.
    worst
        How many communities with the widest intervals.
    seed
        Seed of the draw: the same seed gives the same nodes.

    Raises
    ------
    SettingsError
        When the budget is not positive, a community is unknown, no community has an
        interval to narrow, or the run was not made with `auto`.
    InputError
        When the memberships changed since the run.
    StageError
        When the run is not complete.

    Notes
    -----
    The new labels represent all nodes that are unlabelled now, each ``label_weight`` of
    them; nodes that were labelled before represent themselves and have the weight 1.
    """
    if budget < 1 or not 1 <= worst <= MAX_COMMUNITIES:
        raise SettingsError(
            "--budget and --worst must be 1 or more, and --worst at most "
            f"{MAX_COMMUNITIES}"
        )
    run = Finished(location)
    widths = (run.view.upper - run.view.lower).max(axis=1) / 2
    places = _targets(run, communities, worst, widths)
    sets = run.members(places)
    unlabelled = int(np.count_nonzero(run.nodes.unlabelled))
    budget = min(budget, unlabelled)
    strata = Strata(
        run.nodes,
        run.learnt,
        sets,
        budget,
        labelled=run.settings.labelled,
        parts=run.parts,
    )
    labels = allocate(strata)
    chances = np.clip(labels / strata.sizes, 1e-12, 1.0)
    picked = choose(strata.stratum, chances, budget, seed)
    z = z_value(run.settings.intervals.level)
    now, planned, at_random = (
        z * strata.errors(each).max(axis=1)
        for each in (np.zeros(len(labels)), labels, proportional(strata))
    )
    order, inside = np.argsort(-now, kind="stable"), strata.inside
    # The nodes of a stratum are in the same communities.
    widest = pa.array(order[inside[order].argmax(axis=0)], mask=~inside.any(axis=0))
    stratum, names = strata.stratum[picked], run.view.names.take(places)
    table = pa.table(
        {
            "node_id": community_ids(run.ids.values.take(picked)),
            "community": names.take(widest.take(stratum)),
            "stratum": stratum,
            "inclusion_probability": chances[stratum],
            "label_weight": 1.0 / chances[stratum],
        }
    )
    expected = (inside * labels).sum(axis=1)
    figures = np.stack([expected, widths[places], now, planned, at_random], axis=1)
    predicted = [
        Predicted(str(names[s].as_py()), *figures[s].tolist()) for s in order.tolist()
    ]
    return LabelPlan(conform(table, "label_plan", "plan"), predicted, unlabelled)


def plan_writer(path: str) -> Callable[[LabelPlan], None]:
    """A function that writes the table of a plan as Parquet or CSV, by the suffix.

    Raises
    ------
    SettingsError
        For another suffix; by the function, if the path cannot be written.
    """
    formats = {".csv": pacsv.write_csv, ".parquet": pq.write_table}
    if Path(path).suffix not in formats:
        raise SettingsError(
            f"--out {path} ends neither in .parquet nor in .csv: use one of both"
        )

    def write(plan: LabelPlan) -> None:
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            formats[Path(path).suffix](plan.table, path)
        except OSError as error:
            raise SettingsError(
                f"--out {path} cannot be written ({error}): name another file"
            ) from error

    return write


def _targets(
    run: Finished, named: list[str] | None, worst: int, widths: Floats
) -> Ints:
    """Places of the named communities, or of those with the widest intervals."""
    where = run.directory.uri
    if not named:
        number = min(worst, np.count_nonzero(widths > 0))
        if not number:
            raise SettingsError(
                f"no community of {where} has an interval to narrow: give more "
                "members, or lower disclosure.min_size"
            )
        return np.sort(np.argsort(-widths, kind="stable")[:number])
    if len(named) > MAX_COMMUNITIES:
        raise SettingsError(
            f"{len(named)} communities are named with --community: name at most "
            f"{MAX_COMMUNITIES}"
        )
    places = {name: run.place(name) for name in named}
    for name, place in places.items():
        if not widths[place] > 0:
            raise SettingsError(
                f"community {name!r} has no interval to narrow: name another one"
            )
    return np.sort([*places.values()])
