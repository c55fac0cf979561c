"""The default estimator: what it learns, and how labels were drawn."""
