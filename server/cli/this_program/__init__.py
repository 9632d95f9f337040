"""This program."""
