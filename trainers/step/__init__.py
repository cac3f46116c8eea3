"""A training step: gradients, reduction, update, and what the ledger counts."""
