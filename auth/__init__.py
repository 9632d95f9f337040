"""The authorization server: decisions, SQL and pages. Neither the server nor any web or async framework is imported."""
