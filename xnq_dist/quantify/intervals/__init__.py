"""Intervals of quantifiers that give none themselves."""
