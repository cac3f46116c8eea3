"""Files of a run folder: reading, schemas, whole writes."""
