"""The HTTP/1.1 client: one request and one answer, every part bounded."""
