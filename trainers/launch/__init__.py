"""Processes of a run and jobs of a sweep: start, groups, signals, devices."""
