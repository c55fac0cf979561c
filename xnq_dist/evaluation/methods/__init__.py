"""Methods from the literature that the reservoir is compared with."""
