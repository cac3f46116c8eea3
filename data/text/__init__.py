"""Text datasets: corpora and sentences, their vocabularies, batches and tasks."""
