"""The owner's work on people and logins, and the preparation of a new store."""
