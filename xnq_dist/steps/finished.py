"""A finished run with `auto`, about which `label_plan` and `contrast` ask."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.core.arrays import Floats, Ints
from xnq_dist.core.config import recorded_settings
from xnq_dist.core.errors import InputError, RunDirectoryError, SettingsError
from xnq_dist.core.run_record import RunRecord
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph import layout
from xnq_dist.graph.profile.inputs import answer_digests
from xnq_dist.graph.tables import Sources
from xnq_dist.quantify.communities import open_memberships
from xnq_dist.quantify.default.pooling import PSEUDO
from xnq_dist.quantify.loading import load_learnt, load_node_table
from xnq_dist.steps.results import estimates
from xnq_dist.steps.view import PrevalenceView

__all__ = ["Finished"]


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
