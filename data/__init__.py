"""Datasets: code for all kinds of data, and one sub-package per kind."""
