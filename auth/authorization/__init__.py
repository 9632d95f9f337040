"""Requests for a person's consent: the authorization request and its code (RFC 6749 §4.1), PKCE (RFC 7636), and device authorization (RFC 8628)."""
