"""What the page says of each quantifier, in plain words."""

__all__ = ["QUANTIFIER_TEXT"]

QUANTIFIER_TEXT = {
    "auto": "A community with hardly an edge inside is taken for a sample drawn by "
    "class, and SLD answers. In any other the posteriors may be off as a "
    "whole: several ways in which they may be (unmoved, sharper, moved by "
    "what SLD finds or by half of it, each with an intercept of the "
    "community's own) are weighed by the labelled nodes of all communities; "
    "the answer is the median of what they say together, with the "
    "community's own labels taken in. Intervals hold what the labels leave "
    "open: the intercept, the calibration, and which of the unlabelled "
    "nodes are of the class.",
    "sld": "Expectation maximisation after Saerens, Latinne and Decaestecker (SLD): "
    "starting from the class proportions of the labelled nodes, posteriors are "
    "re-weighted and averaged in turns until the proportions no longer move.",
    "sld_bcts": "SLD after bias-corrected temperature scaling: posteriors are "
    "calibrated anew on the labelled nodes before expectation maximisation.",
    "sld_exact": "The class proportions that make the members' posteriors most likely: "
    "where SLD's expectation maximisation would end after endless steps.",
    "cc": "Classify and count: the share of nodes whose most probable class it is.",
    "pcc": "Mean posterior (probabilistic classify and count).",
    "acc": "Adjusted count: votes corrected by the readout's own error rates.",
    "pacc": "Adjusted mean posterior: mean posteriors corrected by the readout's own "
    "mean posteriors within each class.",
    "nacc": "Neighbourhood-aware adjusted count (NACC): votes of a node and of most of "
    "its neighbours, taken together, corrected by how often each pair was seen at the "
    "labelled nodes of each class.",
    "npacc": "Neighbourhood-aware adjusted mean posterior: products of a node's "
    "posterior and its neighbours' mean posterior, corrected by what they were at the "
    "labelled nodes of each class.",
    "hdy": "Histograms of the posterior: the mixture of the two classes' histograms "
    "that is nearest to the community's (Hellinger distance), and the median over 10, "
    "20, ..., 110 bins.",
    "dys": "Histograms of the posterior: the mixture of the two classes' histograms "
    "that is nearest to the community's (Topsoe distance).",
    "dmy": "Histograms of every class's posterior: the mixture of the classes' "
    "histograms that is nearest to the community's (mean Topsoe distance).",
    "kdey_ml": "Kernel densities of the posteriors of each class's labelled nodes: the "
    "mixture of them that makes the community's posteriors most likely.",
}
