"""Code that any program could use; it imports no other room, and nothing of `auth`."""
