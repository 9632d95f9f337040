"""A FastMCP server with a page and a tool for that page alone, over stdio."""

from fastmcp import FastMCP
from fastmcp.apps import AppConfig, ResourceCSP

mcp = FastMCP("notes")
PAGE = "ui://notes/app.html"


@mcp.tool(app=AppConfig(resource_uri=PAGE))
def notes() -> str:
    return "your notes"


@mcp.tool(app=AppConfig(resource_uri=PAGE, visibility=["app"]))
def keep(text: str) -> str:
    return f"kept {text}"


@mcp.resource(PAGE, app=AppConfig(csp=ResourceCSP(resource_domains=["https://cdn.example.com"])))
def page() -> str:
    return "<h1>notes</h1>"


mcp.run(show_banner=False)
