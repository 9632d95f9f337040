"""What nodes that share one database tell each other."""
