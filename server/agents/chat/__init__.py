"""Agents behind chat endpoints, and the memory of conversations, which all processes share."""
