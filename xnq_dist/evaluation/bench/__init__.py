"""Benchmarks with a common harness, compared with other libraries in the same run."""
