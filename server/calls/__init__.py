"""One request, on any wire, from what was asked to what is answered.

dispatch.py takes it, request.py is its value, method_handlers.py knows who does it, agent_use.py is how what an agent does is done.
"""
