"""The identity of a run: the settings that can change its result."""
