"""Methods that a run can use, one module each (`core.records`)."""
