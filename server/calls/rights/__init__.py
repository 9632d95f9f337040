"""Rights of a caller to what a server offers: `standing.py` decides; `tiers.py` and `server/settings/tool_selection.py` are what it decides by."""
