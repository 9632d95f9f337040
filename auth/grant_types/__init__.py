"""Grant types."""
