"""May this caller of an MCP endpoint come in? bearer_check.py decides, accepted_credentials.py is what each server takes."""
