"""What somebody at the machine may do over the local socket: commands.py is the table."""
