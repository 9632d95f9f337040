"""Commands about this program: serving, installing as a service, help, completion, version."""
