"""Checkpoints: what is saved, how it is read back, and where a run resumes."""
