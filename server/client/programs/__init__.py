"""Other people's programs that speak MCP, and their configuration files: where they are, and what a server looks like there.

table.py has the facts, edit_json.py, edit_toml.py and edit_yaml.py change a file's text in one place and leave the rest as
it is, file.py puts the text back, ledger.py remembers what was put in, so that it can be taken out again to the byte.
"""
