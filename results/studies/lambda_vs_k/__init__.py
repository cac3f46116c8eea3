"""Hard threshold against Top-k at equal bytes."""
