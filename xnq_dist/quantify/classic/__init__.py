"""Quantifiers of the literature: one module each, or one for a family."""
