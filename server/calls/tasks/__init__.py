"""Work that outlives a request: task_engine.py is the whole of it for callers, desk.py where one sees to its own."""
