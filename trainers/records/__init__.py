"""Files of a run folder: reading, schemas, and the identity of a run."""
