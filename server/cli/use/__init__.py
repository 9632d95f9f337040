"""Commands that use a server: logging in, calling its tools, and installing it in other programs."""
