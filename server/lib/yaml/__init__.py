"""YAML, as far as documents that could be JSON need it. Imports nothing of the server."""
