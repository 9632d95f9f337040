"""Pages for owners and for trying tools out, and the routes of all pages."""
