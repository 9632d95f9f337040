"""The Model Context Protocol as functions of values: no sockets, no store, no event loop."""
