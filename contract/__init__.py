"""Contract tests for compressors, of this project and of others."""
