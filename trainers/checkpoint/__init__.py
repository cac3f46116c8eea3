"""Checkpoints: state of a training, files, checks, and the start of a run."""
