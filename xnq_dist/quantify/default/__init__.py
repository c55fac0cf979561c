"""The default estimator: what it learns, how labels were drawn, and benchmarking."""
