"""Files of a run folder: reading, schemas, and the identity that a config gives a run."""
