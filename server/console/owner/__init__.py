"""What whoever owns the server does in a browser: people, keys, the audit trail, upstreams. Each act is a command of the terminal."""
