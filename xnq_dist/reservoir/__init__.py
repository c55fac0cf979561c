"""The graph reservoir: weights, superstep kernels, halo exchange, embedding driver."""
