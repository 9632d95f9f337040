"""Agents behind chat endpoints, and the memory of their conversations, which all processes share."""
