"""Memory and disk of the stage ``quantify``."""

from __future__ import annotations

from xnq_dist.core.need import Need, RunSize
from xnq_dist.core.records import QUANTIFIERS
from xnq_dist.core.settings import Settings
from xnq_dist.graph.needs import sort_scratch
from xnq_dist.quantify.classic.sld import tile_bytes
from xnq_dist.reservoir.needs import supersteps_of
from xnq_dist.reservoir.volume import WORKER
from xnq_dist.selection.scored_rows import model_bytes

__all__ = ["needs"]


def needs(size: RunSize, settings: Settings) -> Need:
    """Estimate what the stage needs; every worker process holds all nodes."""
    auto, threads = settings.quantifier == "auto", size.workers.threads
    # Posteriors and sums over neighbours; `auto` also holds one partition's edges.
    values = 36 if QUANTIFIERS[settings.quantifier].neighbours else 12
    edges = supersteps_of(size, settings).moves.edges / size.per_worker
    worker = WORKER + size.nodes * (size.classes * values + 40) + edges * 24
    if auto:
        worker += model_bytes(size.nodes, size.classes)
    # Each thread may work on a community of all nodes.
    worker += threads * tile_bytes(min(size.nodes, size.members), size.classes)
    return Need(worker=int(worker), scratch=sort_scratch(size.members))
