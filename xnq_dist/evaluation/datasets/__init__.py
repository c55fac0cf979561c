"""Download of the paper's graphs and their conversion to tables that `run` reads."""
