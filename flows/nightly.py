"""The nightly deployment: the whole pipeline on tonight's tables."""

from xnq_dist.app.pipeline_flow import pipeline

__all__ = ["nightly"]

nightly = pipeline.with_options(name="xnq-nightly")
