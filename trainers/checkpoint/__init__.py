"""Checkpoints: state, files, checks and the start of a run."""
