"""Arguments that stand for those of a tool, and programs that call it with them."""
