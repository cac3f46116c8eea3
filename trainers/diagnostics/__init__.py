"""Diagnostics: measurements during a training that do not change it."""
