"""Which communities a run is about, and what its answer depends on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from xnq_dist.config import Settings
from xnq_dist.errors import SettingsError
from xnq_dist.graph import layout
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.tables import Sources, fingerprint_files, open_table
from xnq_dist.quantify.communities import (
    Memberships,
    from_assignment,
    from_column,
    from_memberships,
)
from xnq_dist.quantify.detection import engine_of
from xnq_dist.store import Manifest, RunDirectory

__all__ = ["choose_source", "open_memberships", "stage_inputs"]

log = logging.getLogger(__name__)


def choose_source(sources: Sources, settings: Settings) -> str:
    """``given``, ``leiden`` or ``column:NAME``.

    Raises
    ------
    SettingsError
        When communities are to be given and no memberships table is named.
    """
    given = sources.memberships is not None
    if settings.communities == "auto":
        return "given" if given else "leiden"
    if settings.communities == "given" and not given:
        raise SettingsError(
            "communities = given but no memberships table is named: name one with "
            "--memberships, or set communities = leiden"
        )
    if settings.communities != "given" and given:
        log.warning(
            "the memberships table is not used: communities = %s", settings.communities
        )
    return settings.communities


ON_GPU = (
    *("auto", "sld", "sld_bcts", "sld_exact", "cc", "pcc", "acc", "pacc"),
    *("nacc", "npacc", "dys", "dmy", "kdey_ml"),
)
"""Quantifiers whose answers a GPU rounds otherwise; hdy has the CPU's bits there."""


def stage_inputs(
    sources: Sources,
    settings: Settings,
    source: str,
    graph: Manifest,
    posteriors: Manifest,
    prior: list[float],
) -> dict[str, Any]:
    """All that the answer depends on."""
    inputs: dict[str, Any] = {
        "graph": graph.fingerprint,
        "posteriors": posteriors.fingerprint,
        "prior": prior,
        "communities": source,
        "quantifier": settings.quantifier,
        "labelled": settings.labelled,
        "fit": settings.fit.model_dump(),
    }
    if settings.backend == "gpu" and settings.quantifier in ON_GPU:
        inputs["backend"] = "gpu"  # sums in another order
    if settings.quantifier in ("auto", "sld", "sld_bcts"):
        inputs["sld"] = settings.sld.model_dump()
    elif settings.quantifier in ("dys", "dmy"):
        inputs["matching"] = settings.matching.model_dump()
    elif settings.quantifier == "kdey_ml":
        inputs["kdey"] = settings.kdey.model_dump()
    if settings.quantifier == "auto":
        inputs["auto"] = settings.auto.model_dump() | {"seed": settings.seed}
        left_out = {"resamples", "seed_runs"}
        inputs["intervals"] = settings.intervals.model_dump(exclude=left_out)
    else:
        intervals = settings.intervals.model_dump(exclude={"seed_runs"})
        inputs["intervals"] = intervals | {"seed": settings.seed}
    columns = settings.columns
    if source == "leiden":
        inputs["leiden"] = settings.leiden.model_dump(exclude={"engine"})
        inputs["leiden"] |= {"seed": settings.seed}
        engine = engine_of(settings)
        if engine != "igraph":
            inputs["leiden"]["engine"] = engine
    elif source == "given":
        path = str(sources.memberships)
        inputs["memberships"] = fingerprint_files(path, "memberships table")
        inputs["columns"] = [columns.community, columns.member]
        inputs["unknown_nodes"] = settings.input.unknown_nodes
    else:
        inputs["nodes"] = fingerprint_files(sources.nodes, "node table")
        inputs["columns"] = [columns.node_id]
    return inputs


@contextmanager
def open_memberships(
    run: RunDirectory,
    graph: Manifest,
    nodes: NodeIds,
    sources: Sources,
    settings: Settings,
    source: str,
    scratch: Path,
) -> Iterator[Memberships]:
    """The communities of a source, their members sorted and ready to stream."""
    if source == "given":
        table = open_table(str(sources.memberships), "memberships table")
        context = from_memberships(table, nodes, settings, scratch)
    elif source == "leiden":
        from xnq_dist.quantify.detection import detect

        adjacency = layout.read_adjacency(run.stage("graph"), graph)
        found = detect(adjacency, settings.leiden.resolution, settings)
        del adjacency
        context = from_assignment(found, settings, scratch)
    else:
        table = open_table(sources.nodes, "node table")
        column = source.removeprefix("column:")
        context = from_column(table, column, nodes, settings, scratch)
    with context as memberships:
        yield memberships
