"""Benchmarks: one harness, tidy rows, peers measured in the same run."""
