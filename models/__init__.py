"""Networks, one family per file. A factory takes its settings and the dataset's ``model_arguments``."""
