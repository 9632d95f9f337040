"""Client programs: their registry, redirect URIs, key sets, and Client ID Metadata Documents."""
