"""What can be said of the tools of a server without knowing what they are for. Values in, values out."""
