"""Quantifiers on a GPU."""
