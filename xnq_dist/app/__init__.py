"""Entry points: the command line, the Prefect flows and the demo."""
