"""The difference of two communities' prevalence, with its interval.

The errors of two estimates by `auto` are not independent: both communities may be in
the same groups of the graph, and all share the calibration. The variance of a
difference is that of both estimates without twice their covariance (see `auto`). Where
labels may have been chosen by class the difference has an interval in each of the two
scenarios, and the reported interval contains both. `Finished` is a run with `auto`,
about which `label_plan` asks, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import erfc

from xnq_dist.core.arrays import Floats, Ints
from xnq_dist.core.config import recorded_settings
from xnq_dist.core.errors import InputError, RunDirectoryError, SettingsError
from xnq_dist.core.run_record import RunRecord
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph import layout
from xnq_dist.graph.profile.inputs import answer_digests
from xnq_dist.graph.sources import Sources
from xnq_dist.quantify.communities import open_memberships
from xnq_dist.quantify.default.auto import Auto
from xnq_dist.quantify.default.node_sums import node_sums
from xnq_dist.quantify.default.pooling import PSEUDO
from xnq_dist.quantify.default.scenarios import Tilt
from xnq_dist.quantify.interface import Communities, combine
from xnq_dist.quantify.loading import load_learnt, load_node_table
from xnq_dist.quantify.quality import z_value
from xnq_dist.steps.results import estimates
from xnq_dist.steps.view import PrevalenceView

__all__ = ["Finished", "contrast"]


def contrast(location: str, first: Any, second: Any) -> pa.Table:
    """Compare two communities of a finished run, class by class.

    Parameters
    ----------
    location
        The run directory; its memberships table must be unchanged.
    first, second
        Names of the communities, as text or as in the tables.

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
    InputError
        When the memberships changed since the run.
    StageError
        When the run is not complete.

    Notes
    -----
    Nodes that both communities share are treated as different nodes: the interval is
    then too wide, never too narrow.
    """
    run = Finished(location)
    nodes, learnt, level = run.nodes, run.learnt, run.settings.intervals.level
    places = [run.place(name) for name in (first, second)]
    sets = run.members(np.array(places))
    # The third is both together: covariances follow from its variance.
    batch = Communities.of([*sets, np.concatenate(sets)])
    auto, plain = Auto(level, learnt, run.parts), Tilt.none(len(nodes.classes))
    tilt, z = learnt.tilt or plain, z_value(level)
    ends, pvalues = [], []
    for each in (tilt,) if tilt.alone else (plain, tilt):
        scenario = auto.in_scenario(each, batch, nodes)
        made = combine(batch, nodes, scenario, run.settings.labelled)
        free = batch.only(nodes.unlabelled)
        sums = node_sums(free, nodes, learnt, each)
        shift = (sums.variance - sums.weight) * each.inflation**2
        about = run.view.about[places]
        twice = (shift[2] - shift[0] - shift[1]) / (about[0] * about[1])
        sd = np.sqrt(np.maximum((made.sd[:2] ** 2).sum(axis=0) - twice, 0.0))
        apart = made.prevalence[0] - made.prevalence[1]
        ends += [apart - z * sd, apart + z * sd]
        with np.errstate(divide="ignore", invalid="ignore"):
            pvalue = erfc(np.abs(apart) / (np.sqrt(2) * sd))
        # NaN: both are known exactly, and equal.
        pvalues.append(np.nan_to_num(pvalue, nan=1.0))
    shares = run.view.prevalence[places]
    lower, upper = np.min(ends, axis=0), np.max(ends, axis=0)
    return pa.table(
        {
            "class_name": nodes.classes,
            "first": shares[0],
            "second": shares[1],
            "difference": shares[0] - shares[1],
            "se": (upper - lower) / (2 * z),
            "lower": np.maximum(lower, -1.0),
            "upper": np.minimum(upper, 1.0),
            "pvalue": np.max(pvalues, axis=0),
        }
    )


class Finished:
    """A run with the variances that `auto` learnt.

    Raises
    ------
    RunDirectoryError, StageError
        When there is no run, or it is not complete.
    SettingsError
        When it was not made with `auto`.
    """

    def __init__(self, location: str) -> None:
        self.directory = run = RunDirectory(location)
        record = RunRecord.read(run)
        if not record.settings:
            raise RunDirectoryError(
                f"{run.uri} is not a run directory: name one made by xnq-dist run"
            )
        self.manifest = manifest = run.complete("quantify")
        """Of the stage ``quantify``."""
        files = manifest.named("learnt-")
        if not files:
            raise SettingsError(
                f"{run.uri} does not have the variances that label plans and contrasts "
                "need: run again with quantifier = auto and memberships.drawn = unknown"
            )
        self.settings = recorded_settings(record.settings)
        self.sources = Sources(**record.sources)
        self.ids = layout.load_ids(run.complete("graph"))
        """Ids of the nodes."""
        self.nodes = load_node_table(run)
        """All nodes."""
        self.learnt = load_learnt(run, files[0])
        """The variances."""
        self.parts: Floats | None = None
        """Weights of the parts of the intercepts' prior; None: `auto` did not pool.

        Runs of earlier versions have the same for estimates and for intervals.
        """
        pooled = manifest.facts.get("pooled")
        if pooled is not None:
            self.parts = np.broadcast_to(pooled["weights"], PSEUDO.shape)
        table = estimates(manifest, "prevalence")
        self.view = PrevalenceView(table, labelled=self.settings.labelled)
        """The table ``prevalence``, arranged by community and class."""

    def place(self, name: Any) -> int:
        """Place in `view` of a community; a `SettingsError` if it has no estimate."""
        names = self.view.names.cast(pa.string())
        place = int(pc.index(names, str(name)).as_py())
        if place < 0:
            raise SettingsError(
                f"there is no community {name!r} in {self.directory.uri}: see the "
                "column community of prevalence.parquet"
            )
        if np.isnan(self.view.prevalence[place, 0]):
            raise SettingsError(
                f"community {name!r} of {self.directory.uri} has no estimate, or is "
                f"suppressed (fewer than {self.settings.disclosure.min_size} members, "
                "disclosure.min_size): see the column note of prevalence.parquet, or "
                "name another one"
            )
        return place

    def members(self, places: Ints) -> list[Ints]:
        """Read the members of communities; an `InputError` if they changed since."""
        run, made = self.directory, self.manifest.inputs
        source = made["communities"]
        inputs = self.sources, self.settings, source
        try:
            digests = answer_digests(run, *inputs)
        except InputError as error:
            raise InputError(
                f"{error}, or run xnq-dist run again with the tables where they are "
                "now: what did not change is not computed again"
            ) from error
        if made != made | digests:
            raise InputError(
                f"the memberships changed since {run.uri} was made: run xnq-dist run "
                "again first"
            )
        if source == "leiden":
            table = estimates(self.manifest, "communities")
            community = table["community"].to_numpy()
            nodes = self.ids.index_of(table["node_id"])
            return [np.sort(nodes[community == place]) for place in places.tolist()]
        found: dict[int, Ints] = {}
        graph = run.complete("graph")
        with open_memberships(graph, self.ids, *inputs) as memberships:
            for chunk in memberships.sorter.chunks():
                inside = (places >= chunk.first) & (places < chunk.last)
                for place in places[inside].tolist():
                    ends = chunk.indptr[place - chunk.first :]
                    found[place] = chunk.indices[ends[0] : ends[1]].astype(np.int64)
        return [found[place] for place in places.tolist()]
