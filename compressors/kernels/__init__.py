"""Compiled kernels for sparsifiers and quantisers, tested against the reference."""
