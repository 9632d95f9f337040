"""Proofs of a client: client assertions (RFC 7523) and DPoP (RFC 9449)."""
