"""The configured servers: endpoint.py is one of them while it runs, server_opening.py how they come to run, agent_factory.py what answers."""
