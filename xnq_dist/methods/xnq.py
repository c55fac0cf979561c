"""XNQ as in the paper: one reservoir and a logistic readout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xnq_dist.core.failures import stage_errors
from xnq_dist.core.progress import Progress
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Manifest, RunDirectory
from xnq_dist.readout.fit import fit_logistic as fit
from xnq_dist.readout.fit import write_posteriors
from xnq_dist.readout.select import select_scales
from xnq_dist.reservoir.embed import make_embeddings

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["embed", "fit", "write_posteriors"]


def embed(
    run: RunDirectory, settings: Settings, client: Client, progress: Progress
) -> Manifest:
    """Compute the reservoir's states, with scales as set or selected by a search."""
    with stage_errors(run.uri, "select"):
        select_scales(run, settings, client, progress)
    return make_embeddings(run, settings, client, progress)
