"""Tasks, calls that outlive their request: `task_engine.py` runs them, `task_order.py` is what is to be done."""
