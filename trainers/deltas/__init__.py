"""Lossless differences between versions of weights: encoding, files, and folders of versions."""
