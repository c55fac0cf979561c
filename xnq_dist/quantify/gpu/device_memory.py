"""What quantifying takes of a GPU's memory, for plans."""

from __future__ import annotations

__all__ = ["MOST_MEMBERSHIPS", "quantified_bytes"]

MOST_MEMBERSHIPS = 1 << 22
"""Of a batch of communities, but for one that has more."""
MEMBERSHIP = 32
"""Bytes a membership takes on a GPU: member, logit, code, its community's answers."""


def quantified_bytes(nodes: int, classes: int, threads: int) -> int:
    """Bytes that a GPU holds while threads quantify a batch each."""
    # Posteriors and a mask of all nodes.
    return (4 * classes + 1) * nodes + MEMBERSHIP * min(
        threads * MOST_MEMBERSHIPS, 8 * nodes
    )
