"""The graph reservoir: weights, kernels, halo exchange and the embedding driver."""
