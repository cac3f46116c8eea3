"""Networks, one family per file. A factory gets the facts of the data's samples."""
