"""Programs: who they are, how they register or are found, and how they prove themselves."""
