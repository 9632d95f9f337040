"""What may a caller know of and use? standing.py decides; tiers.py and selection.py are what it decides by."""
