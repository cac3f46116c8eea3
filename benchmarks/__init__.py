"""Benchmarks of speed, memory and network bytes, each with its own command."""
