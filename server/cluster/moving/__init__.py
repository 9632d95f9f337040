"""The copy of all rows from one database to another."""
