"""Trust in upstreams: pins of what they offer, and the logins and tokens with which they are called."""
