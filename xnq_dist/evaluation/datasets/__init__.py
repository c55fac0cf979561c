"""The graphs of the paper from their public homes, in the form the tool reads."""
