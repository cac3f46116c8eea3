"""Convex problems: objective, gradient and optimum."""
