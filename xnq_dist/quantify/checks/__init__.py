"""What is checked of answers: quality, fit, anomalies, changes and coverage."""
