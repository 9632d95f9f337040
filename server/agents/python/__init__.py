"""Agents that are Python files: their process, the lines exchanged with it, and `shim/`, the package that they import."""
