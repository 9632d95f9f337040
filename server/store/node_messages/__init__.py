"""Messages between nodes that share one database."""
