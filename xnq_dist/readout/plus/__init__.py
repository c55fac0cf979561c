"""The readout of xnq+: label features, a first and a second stage, a pool of models."""
