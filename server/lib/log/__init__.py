"""What the server says of itself: log events and metrics."""
