"""Manage."""
