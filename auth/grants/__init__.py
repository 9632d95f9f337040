"""The token endpoint: one page on which a request is read (pipeline.py), a page for each grant type, and ending logins (admin.py)."""
