"""Deployment flows: what `deploy/prefect.yaml` points to; not part of the wheel."""
