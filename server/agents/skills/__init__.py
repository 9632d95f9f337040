"""Skills that are text: a `.3md` document or a folder of `SKILL.md` files, read, checked, and offered. Nothing of it is run here."""
