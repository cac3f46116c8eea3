"""The paper's convex experiments."""
