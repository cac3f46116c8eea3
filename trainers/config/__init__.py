"""Composition and validation of configs, before slow modules are imported."""
