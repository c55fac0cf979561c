"""Groups and communities of the graph: Leiden, on a contracted graph if too large."""
