"""Shared foundations of all stages: settings, errors, store, cluster and arrays."""
