"""The methods of a run, one module each (`core.method_records`)."""
