"""A process of this server: how it is put together, started, reloaded, watched and drained."""
