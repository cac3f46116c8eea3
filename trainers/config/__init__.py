"""Validation of a composed config, before anything heavy is imported."""
