"""Admission to an MCP endpoint: `bearer_check.py` decides, `accepted_credentials.py` is what each server takes."""
