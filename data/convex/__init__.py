"""Datasets with binary labels for convex problems."""
