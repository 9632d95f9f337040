"""Client authentication."""
