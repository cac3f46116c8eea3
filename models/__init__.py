"""Networks, one family per file. A factory is called with what the data says of its samples."""
