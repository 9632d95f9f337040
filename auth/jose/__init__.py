"""Signed JSON (RFC 7515, RFC 7517, RFC 7518): reading a token strictly, keys, signatures. What a token means is for its readers.

Stands on `auth.values` alone.
"""
