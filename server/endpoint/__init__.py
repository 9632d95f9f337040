"""The configured servers: endpoint.py is one of them while it runs, opening.py how they come to run, agents.py what answers."""
