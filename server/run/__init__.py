"""How a process of ours starts, what it is put together from, and how it ends."""
