"""MCP servers of others behind ours: reached over HTTP, as a child process or over TCP, in either era of the protocol."""
