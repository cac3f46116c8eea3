"""A run's folder, environment, trackers and terminal report."""
