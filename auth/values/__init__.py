"""Values that all of identity is made of: rows, scopes, addresses, bounds, and HTTP as plain data.

The lowest package: its modules import nothing of `auth` but each other.
"""
