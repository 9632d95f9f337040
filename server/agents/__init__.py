"""Agents: what answers a call, a package for each kind."""
