"""The HTTP server: connections, and the endpoints of MCP and plain HTTP."""
