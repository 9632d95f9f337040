"""Signed JSON (RFC 7515, RFC 7517, RFC 7518): reading a token strictly, keys, signatures. The readers of a token know what it means.

Stands on `auth.values` alone.
"""
