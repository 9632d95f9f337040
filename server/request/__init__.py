"""One request, on any wire, from what was asked to what is answered.

dispatch.py takes it, request.py is its value, handlers.py knows who does it, perform.py is how what an agent does is done.
"""
