"""Collectives between workers, with the bytes charged for them."""
