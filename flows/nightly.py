"""The nightly deployment: the complete pipeline on the current tables."""

from xnq_dist.app.pipeline_flow import pipeline

__all__ = ["nightly"]

nightly = pipeline.with_options(name="xnq-nightly")
