"""What quantifying takes of a GPU's memory, for plans."""

from __future__ import annotations

__all__ = ["MOST_MEMBERSHIPS", "quantified_bytes"]

MOST_MEMBERSHIPS = 1 << 22
"""Of a batch of communities, but for one that has more."""
MEMBERSHIP = 32
"""Bytes a membership takes on a GPU: member, logit, code, its community's answers."""


def quantified_bytes(nodes: int, classes: int, quantifier: str, threads: int) -> int:
    """Bytes that a GPU holds while threads quantify a batch each."""
    beside = {
        **dict.fromkeys(("nacc", "npacc", "sld_exact", "kdey_ml"), 8 * classes),
        **dict.fromkeys(("sld_bcts", "dmy"), 4 * classes),
        **{"hdy": 44, "dys": 4},
    }
    # Posteriors and a mask of all nodes; what a quantifier makes of those in a batch.
    node = 4 * classes + 1 + beside.get(quantifier, 0)
    return node * nodes + MEMBERSHIP * min(threads * MOST_MEMBERSHIPS, 8 * nodes)
