"""The readout: logistic regression on embeddings, calibrated; posteriors of all nodes.

Cross-fitted over the labelled nodes, or by the roles in the node table, so that a
labelled node's posterior is always computed without its label.
"""
