"""The owner's pages: people, keys, the audit trail, upstreams. Each act is a command of the terminal."""
