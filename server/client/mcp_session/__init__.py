"""One MCP client for both eras, over HTTP, pipes and TCP: what is agreed on, requests and what is asked and told meanwhile, and sessions of any number of callers."""
