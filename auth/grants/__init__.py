"""The token endpoint: one page on which a request is read (auth/endpoints/token_endpoint.py), a page for each grant type, and ending logins (login_records.py)."""
