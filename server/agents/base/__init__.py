"""The contract between a call and whatever answers it (`backend.py`), the catalogue of many, and child processes."""
