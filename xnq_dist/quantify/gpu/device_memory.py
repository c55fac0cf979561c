"""GPU memory that quantification needs, for plans."""

from __future__ import annotations

__all__ = ["MAX_MEMBERSHIPS", "quantified_bytes"]

MAX_MEMBERSHIPS = 1 << 22
"""Maximum memberships of a batch, unless one community has more."""
MEMBERSHIP = 32
"""Bytes per membership on a GPU: member, logit, code, its community's results."""


def quantified_bytes(nodes: int, classes: int, threads: int) -> int:
    """Bytes of GPU memory while each thread estimates a batch."""
    # Posteriors and the mask of unlabelled nodes, and one batch per thread.
    return (4 * classes + 1) * nodes + MEMBERSHIP * min(
        threads * MAX_MEMBERSHIPS, 8 * nodes
    )
