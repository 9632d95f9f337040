"""Limits: how often, how many at once, how many a day, and who is next when an agent has no place free."""
