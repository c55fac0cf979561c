"""Checks of estimates: quality, fit, anomalies, changes and coverage."""
