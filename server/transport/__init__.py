"""Transports, and the admission of callers."""
