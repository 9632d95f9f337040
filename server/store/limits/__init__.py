"""Limits: how often, how many at once, and how many a day."""
