"""Certificates from an authority, got and renewed by the server that they are for: ACME (RFC 8555), with the proofs of TLS-ALPN-01
(RFC 8737) and HTTP-01, and renewal at the time that the authority suggests (RFC 9773).

Loaded only where a domain is configured. What the authority says is somebody else's word: it is read with bounds, and nothing of it ends
what is served.
"""
