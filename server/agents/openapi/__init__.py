"""An HTTP API with an OpenAPI description, its operations offered as tools. The address that is called is the settings', never the caller's."""
