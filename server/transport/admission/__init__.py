"""Admission to an MCP endpoint: `bearer_check.py` decides, `credential_settings.py` is what each server takes."""
