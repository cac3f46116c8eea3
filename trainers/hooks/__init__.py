"""Compression in scripts of a user's own: hooks of DDP and FSDP2, their buckets, state and logs."""
