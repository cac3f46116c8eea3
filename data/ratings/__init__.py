"""Ratings as implicit feedback: files, negatives, ranking."""
