"""The configured servers: `endpoint.py` is one while it runs, `server_opening.py` opens them, `agent_factory.py` makes their agents."""
