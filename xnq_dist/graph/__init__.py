"""Reading and partitioning of graph tables, halo plans, and generated graphs."""
