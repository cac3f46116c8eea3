"""Studies: a module for each, on one kit."""
