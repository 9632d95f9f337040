"""Certificates that the server gets and renews for itself, from an authority (ACME, RFC 8555).

Names are proved by TLS-ALPN-01 (RFC 8737) or HTTP-01; it renews when the authority suggests it (RFC 9773).

Loaded only where a domain is configured. An answer of the authority is somebody else's word: it is read with bounds, and nothing of it
ends what is served.
"""
