"""Speed and memory, each with its own command."""
