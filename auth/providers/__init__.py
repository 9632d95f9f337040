"""Providers whose word about a person is taken: signing in through them, and their assertions."""
