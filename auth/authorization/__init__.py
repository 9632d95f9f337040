"""Logins in a browser (RFC 6749 §4.1): the request, the consent, the code. Redeeming the code is in grant_types/authorization_code_grant.py."""
