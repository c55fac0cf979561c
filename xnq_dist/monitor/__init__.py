"""What is shown of a run while it works: progress, status, log lines, Prefect."""
