"""The authorization server: decisions, SQL and pages. It imports neither the server nor any web or async framework."""
