"""A compressor for Total Error in its own package."""
