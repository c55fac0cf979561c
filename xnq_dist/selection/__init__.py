"""How nodes came by their labels: at random, by class, by place, or by both.

Functions of arrays (numpy and scipy): a model of the selection fitted to the scores of
labelled and unlabelled nodes, tests, a verdict, and the tilt of posteriors that undoes
selection by class. The stage ``quantify`` and the evaluation call them.
"""
