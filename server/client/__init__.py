"""The client side of MCP and OAuth: finding a server, logging in, keeping tokens, calling tools, and the bridge."""
