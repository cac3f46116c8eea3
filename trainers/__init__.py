"""The data-parallel trainer: workers, processes, the step, the ledger, and what a run leaves behind."""
