"""Numbers of runs side by side: measures, intervals, verdicts, published numbers."""
