"""May this caller of an MCP endpoint come in? bearer.py decides, credentials.py is what each server takes."""
