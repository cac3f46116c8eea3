"""Studies, with a module or package for each, and their common parts."""
