"""The inputs of the stage ``quantify``, as values: see `core.inputs`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xnq_dist.core.settings import Settings
from xnq_dist.core.stages import STAGES
from xnq_dist.core.store import Folder, Manifest
from xnq_dist.graph.profile.inputs import answer_digests
from xnq_dist.graph.tables import Sources

__all__ = ["quantify_inputs"]

USED: Any = {
    **dict.fromkeys(("quantifier", "labelled", "memberships", "auto"), True),
    **dict.fromkeys(("intervals", "quality", "seed"), True),
    # Labels are compared by value, after `labels.missing` was applied.
    "labels": {"drawn", "prior"},
    "readout": {"folds"},
    "disclosure": {"min_size"},
    "input": {"unknown_nodes", "memory"},
}
"""Settings that estimates depend on."""


def quantify_inputs(
    stages: Mapping[str, Manifest],
    folder: Folder,
    sources: Sources,
    settings: Settings,
    source: str,
) -> dict[str, Any]:
    """Inputs of the stage ``quantify``, with the digest of ``memberships``.

    Parameters
    ----------
    stages
        The stages ``graph``, ``labels``, ``readout`` and ``posteriors``.
    folder
        The run directory, which keeps digests of tables.
    source
        Source of the communities, from `choose_source`.
    """
    inputs = {
        "format": STAGES["quantify"].format,
        "labels": stages["labels"].fingerprint,
        "posteriors": stages["posteriors"].fingerprint,
        "prior": [float(value) for value in stages["readout"].facts["prior"]],
        "communities": source,
        "settings": settings.model_dump(mode="json", include=USED),
    }
    if source == "leiden":
        from xnq_dist.groups.detection import streams

        streamed = streams(settings, stages["graph"].facts["n_edges"])
        inputs["leiden"] = settings.leiden.model_dump()
        inputs["engine"] = "streamed" if streamed else "cpu"
    return inputs | answer_digests(folder, sources, settings, source)
