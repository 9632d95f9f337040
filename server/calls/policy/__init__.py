"""What stands in front of tools: rules that decide, hooks that look, what is confirmed, and what is blotted out of answers."""
