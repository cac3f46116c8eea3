"""Run folders: reading, checking and matching of runs."""
