"""Repeats: a call that is made again, and what it comes to: the first one's answer, whether that costs something or not."""
