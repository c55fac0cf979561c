"""Flows that `deploy/prefect.yaml` deploys; they are not part of the wheel."""
