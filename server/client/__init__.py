"""The other end of the wire: finding a server, logging in, keeping tokens, speaking MCP as a client."""
