"""Encoding of gathered payloads: codes of indices and of values, and messages made of them."""
