"""The client side of MCP and OAuth: finding a server, logging in, calling tools, and the bridge from stdio to HTTP."""
