"""Checks of a server's tools, without knowing what they are for. Values in, values out."""
