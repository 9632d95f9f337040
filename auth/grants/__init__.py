"""Token requests, and the logins (grants) that come of them: identity assertions, refresh tokens, and the end of a login."""
