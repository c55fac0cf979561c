"""XNQ as in the paper: one reservoir and a logistic readout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xnq_dist.core.config import Settings
from xnq_dist.core.failures import stage_errors
from xnq_dist.core.method_records import MethodRecord
from xnq_dist.core.progress import Progress
from xnq_dist.core.store import Manifest, RunDirectory
from xnq_dist.readout.rows import write_posteriors
from xnq_dist.readout.select import select_scales
from xnq_dist.readout.stage import fit_logistic as fit
from xnq_dist.reservoir.embed import embed_scaled

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["RECORDS", "embed", "fit", "write_posteriors"]

RECORDS = (
    MethodRecord(
        name="xnq",
        title="XNQ",
        rank=1,
        text="reservoir and logistic readout, as in the paper",
        report="A logistic readout, fitted on the labelled nodes, turned states into "
        "scores",
        searches=True,
        embedding_inputs={},
        readout_inputs={},
    ),
)


def embed(
    run: RunDirectory, settings: Settings, client: Client, progress: Progress
) -> Manifest:
    """Compute the reservoir's states, with scales as set or selected by a search."""
    with stage_errors(run.uri, "select"):
        scales = select_scales(run, settings, client, progress)
    return embed_scaled(run, settings, client, *scales, progress)
