"""Run folders to figures and tables, beside the published numbers they are compared with."""
