"""Identity providers of others (OpenID Connect, GitHub): requests to them, and signing in with their word."""
