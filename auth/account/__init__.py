"""The account page of a person, section by section: page.py puts it together."""
