"""Access and You, the pages of an account, section by section: page.py puts them together."""
