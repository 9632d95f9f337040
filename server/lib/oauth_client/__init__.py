"""The client of authorization servers, for the terminal, the gateway, sign-in by a provider, and APIs: requests, and what answers mean."""
