"""A server that is made up: tools, resources and prompts of a document, and for each tool what it answers to which arguments.

The document is its author's own, read when the server starts; what callers send is only compared with it.
"""
