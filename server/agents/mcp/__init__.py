"""MCP servers of others behind this one (upstreams): over HTTP, as a child process, or over TCP, in either era of the protocol."""
