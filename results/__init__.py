"""Figures and tables from run folders, and comparison with published numbers."""
