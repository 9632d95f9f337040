"""Money as a value: whole numbers, how they are written and read. Imports nothing of the server."""
