"""A compressor for Total Error in a package of its own."""
