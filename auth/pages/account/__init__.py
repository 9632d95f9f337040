"""The two pages of an account, named Access and You, section by section: `account_page.py` puts them together."""
