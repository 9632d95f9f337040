"""MCP over a pair of pipes, or over TCP: a message on each line."""
