"""Settings: their shapes and rules, what they come to on this machine, and the file that `init` writes."""
