"""Policy in front of tools: rules, hooks, confirmation, and redaction of answers."""
