"""The agent in a Python file that the bench calls: its one public function is a tool."""


def echo(text: str) -> str:
    """Say the same again."""
    return text
