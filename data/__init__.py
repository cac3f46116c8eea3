"""Datasets: files, samples and batches, one sub-package per kind of data; what all kinds share is here."""
