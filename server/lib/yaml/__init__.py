"""A reader of YAML, as far as documents have it that could as well be JSON."""
