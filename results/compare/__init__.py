"""Comparison of runs: measures, intervals, verdicts, published numbers."""
