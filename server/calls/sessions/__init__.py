"""Sessions of the handshake era (revisions before 2026-07-28), their streams, and who listens for changes."""
