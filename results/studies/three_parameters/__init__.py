"""Three key parameters."""
