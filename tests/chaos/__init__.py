"""Faults on real files and processes, by seed, and what became of them."""
