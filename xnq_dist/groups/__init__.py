"""Groups and communities of the graph, by Leiden or by label propagation on workers."""
