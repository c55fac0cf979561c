"""The deployment for new labels or memberships on embeddings that are there."""

from xnq_dist.app.requantify_flow import requantify

__all__ = ["requantify"]
