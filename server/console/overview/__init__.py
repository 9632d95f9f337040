"""The Overview of a server for its owner: values read from the store and from what runs, and their pages."""
