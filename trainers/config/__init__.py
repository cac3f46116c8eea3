"""Validation of a composed config, before slow modules are imported."""
