"""The readout: logistic regression on embeddings, calibrated; posteriors of all nodes.

Cross-fitted over the labelled nodes, or by the roles that the node table gives, so
that a labelled node's posterior never has its own label behind it.
"""
