"""Conversion of graphs in other formats to the tables that `run` reads."""
