"""Flows that `deploy/prefect.yaml` deploys; the wheel has them as `xnq_dist.flows`."""
