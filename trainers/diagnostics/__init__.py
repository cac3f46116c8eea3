"""Measurements beside a training that do not change it."""
