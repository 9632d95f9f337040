"""Endpoints for programs: their table, `/token`, registration, pushed requests, introspection and metadata."""
