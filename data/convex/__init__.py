"""Rows of features with labels of two values, for convex problems."""
