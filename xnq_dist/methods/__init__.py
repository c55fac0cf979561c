"""Methods that a run can use, one module each (`core.method_records`)."""
