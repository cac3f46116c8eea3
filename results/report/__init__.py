"""The HTML report, and its counterpart at Weights & Biases."""
