"""Grant types: a module for each that `/token` knows, and their table."""
