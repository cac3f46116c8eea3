"""Compiled kernels for sparsifiers, tested against the reference."""
