"""Ratings as implicit feedback: files, negative samples, ranking task."""
