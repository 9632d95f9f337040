"""What somebody at the machine may do over the local socket: command_table.py is the table."""
