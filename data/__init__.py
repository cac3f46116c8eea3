"""Datasets: shared code, and one sub-package per kind of data."""
