"""The server's own keys: signing keys, keys of refresh tokens, their rotation, and secrets sealed in the store."""
