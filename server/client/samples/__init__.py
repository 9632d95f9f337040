"""Sample arguments for a tool, and programs that call it with them."""
