"""Values that everything in identity is made of: rows, scopes, addresses, bounds, HTTP as plain data, what a job is handed.

The lowest floor: nothing here imports anything of `auth` but its neighbours.
"""
