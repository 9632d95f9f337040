"""Other people's programs that speak MCP, and their configuration files: where they are, and what a server looks like there.

program_table.py has the facts, config_edit_json.py, config_edit_toml.py and config_edit_yaml.py change a file's text in one place and leave the rest as
it is, config_file.py puts the text back, installed_entries.py remembers what was put in, so that it can be taken out again to the byte.
"""
