"""Faults injected into runs that a Prefect server started.

``python -m tests.chaos --deployments 200 --seed 0 --out FOLDER`` keeps one server and
one worker, runs the deployment `nightly` on a small graph, hurts each run in one way at
a seeded moment, and lets an ordinary run follow where the first one failed.
"""
