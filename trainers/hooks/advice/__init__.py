"""Measured costs of steps, and advice on whether compression saves time on a network."""
