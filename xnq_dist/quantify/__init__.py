"""Class prevalence of communities from calibrated posteriors and known labels."""
