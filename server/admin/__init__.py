"""Commands for the owner at the machine, over a Unix socket: `command_table.py` is their table."""
