"""HTML report of runs, and the same report at Weights & Biases."""
