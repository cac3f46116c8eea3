"""Measured costs of steps, and advice whether compression pays on a network."""
