"""What the page says of each quantifier, in plain words."""

__all__ = ["QUANTIFIER_TEXT"]

QUANTIFIER_TEXT = {
    "auto": "Known labels are counted; the unlabelled members add the mean of their "
    "posteriors, so that the estimates of disjoint communities add up to that of their "
    "union and none depends on which others are asked for. Intervals hold three "
    "errors: which of the unlabelled nodes are of the class, by how much posteriors "
    "are off together within a group of the graph (learnt from the labelled nodes), "
    "and by how much all of them are.",
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
