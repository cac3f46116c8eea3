"""Collectives between workers, and the bytes that they are charged for."""
