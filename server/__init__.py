"""The server: MCP endpoint, HTTP, store, back-ends and command line."""

__version__ = "0.1.0"
