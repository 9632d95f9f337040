"""Access and You, the pages of an account, section by section: `account_page.py` puts them together."""
