"""Intervals for quantifiers without intervals, and the variance between seeds."""
