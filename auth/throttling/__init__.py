"""Throttling."""
