"""Calls, on any wire, from request to answer.

`dispatch.py` takes one, `request.py` is its value, `method_handlers.py` knows who does it, `agent_use.py` is how every agent is used.
"""
