"""Orchestration only: Prefect flows and the command line. No maths."""
