"""Evaluation of methods and quantifiers on labelled graphs by the paper's protocol."""
