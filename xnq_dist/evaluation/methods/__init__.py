"""Methods of the literature that the reservoir is compared with."""
