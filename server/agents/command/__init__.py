"""Programs as agents, started for each call: `kind = "command"` answers with what it prints, `kind = "agent"` speaks meanwhile.

A program is never started by a shell that reads words of a caller's, sees no more of the environment than any other agent, and ends with its
call, together with all that it started.
"""
