"""How the labelled nodes were chosen: at random, by class, by place, or by both.

Functions of arrays (numpy and scipy): a model of the selection fitted to the scores of
labelled and unlabelled nodes, tests, a verdict, and the tilt of posteriors that
corrects for selection by class. The stage ``quantify`` calls them.
"""
