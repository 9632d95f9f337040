"""The side that pays: what may be spent, which of the ways to pay is taken, what is signed, and what was signed already.

Loaded only by whoever was told to pay. Whatever asks for money is somebody else's server: its words are read with bounds, and nothing in
them widens what the policy allows.
"""
