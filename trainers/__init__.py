"""The data-parallel trainer: workers, processes, the step, the ledger and the files of a run."""
