"""People: accounts, passkeys, browser sessions, browsers that are known, and one-time links."""
