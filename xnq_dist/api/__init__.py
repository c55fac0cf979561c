"""The pipeline for people with data frames, arrays and graph objects."""
