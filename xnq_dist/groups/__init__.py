"""The graph's own communities, by Leiden or by label propagation on workers."""
