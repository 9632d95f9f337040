"""Sessions of the handshake era, their streams and the work that outlives a request; who listens for changes."""
