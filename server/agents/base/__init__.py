"""The contract between a call and whatever answers it (`backend.py`), the catalogue of many such, and child processes."""
