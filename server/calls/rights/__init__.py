"""What may a caller know of and use? standing.py decides; tiers.py and server/settings/tool_selection.py are what it decides by."""
