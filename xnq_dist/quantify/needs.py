"""Memory and disk of the stage ``quantify``."""

from __future__ import annotations

from xnq_dist.core.need import Need, RunSize
from xnq_dist.core.quantifiers import record_of
from xnq_dist.core.settings import Settings
from xnq_dist.graph.needs import sort_scratch
from xnq_dist.quantify.classic.giants import store_bytes
from xnq_dist.quantify.gpu.device_memory import quantified_bytes
from xnq_dist.reservoir.needs import supersteps_of
from xnq_dist.reservoir.volume import WORKER
from xnq_dist.selection.scored_rows import model_bytes

__all__ = ["needs"]


def needs(size: RunSize, settings: Settings) -> Need:
    """Estimate what the stage needs; every worker process holds all nodes."""
    auto, threads = settings.quantifier == "auto", size.workers.threads
    # Posteriors and sums over neighbours; `auto` also holds one partition's edges.
    values = 36 if record_of(settings.quantifier).neighbours else 12
    edges = supersteps_of(size, settings).moves.edges / size.per_worker
    worker = WORKER + size.nodes * (size.classes * values + 40) + edges * 24
    if auto:
        worker += model_bytes(size.nodes, size.classes, settings.readout.folds)
    # Each thread may work on a community of all nodes.
    worker += threads * store_bytes(min(size.nodes, size.members), size.classes)
    counts = size.nodes, size.classes, threads
    return Need(
        worker=int(worker),
        device=quantified_bytes(*counts) if size.workers.device else 0,
        scratch=sort_scratch(size.members, settings.input.memory_bytes),
    )
