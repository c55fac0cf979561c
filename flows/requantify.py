"""The deployment for new labels or memberships on existing embeddings."""

from xnq_dist.app.requantify_flow import requantify

__all__ = ["requantify"]
