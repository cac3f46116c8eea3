"""Encoding of gathered payloads: codes of indices and values, and messages."""
