"""What people and schedulers start: the command line, the Prefect flows, the demo."""
