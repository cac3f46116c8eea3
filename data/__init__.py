"""Datasets, how they are split over workers, and the batches that workers read."""
