"""Documents of well-known clients as they were published, for when their own address cannot be reached from here.

Some of those addresses turn data centres away, and a private server may have no way out at all. Each is judged by the same
rules as one that was fetched, and is used no longer than its address stays unreachable, unless pinned ones are all there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_FILES: Final[Mapping[str, str]] = MappingProxyType(
    {
        # client id                                            file, as published and seen in
        "https://claude.ai/oauth/claude-code-client-metadata": "claude-code.json",  # 2026-09
        "https://claude.ai/oauth/mcp-oauth-client-metadata":   "claude.json",       # 2026-09
        "https://chatgpt.com/oauth/client.json":               "chatgpt.json",      # 2026-09
        "https://chatgpt.com/oauth/codex/client.json":         "codex.json",        # 2026-09
        "https://opencode.ai/oauth/opencode/client.json":      "opencode.json",     # 2026-09
        "https://vscode.dev/oauth/client-metadata.json":       "vscode.json",       # 2026-09
        "https://zed.dev/oauth/client-metadata.json":          "zed.json",          # 2026-09
    }
)  # fmt: skip


def names() -> tuple[str, ...]:
    """The client ids that there are pinned documents of."""
    return tuple(_FILES)


def body(client_id: str) -> bytes | None:
    from importlib.resources import (
        files,  # with its readers of archives it costs every start more than this does
    )

    file = _FILES.get(client_id)
    return None if file is None else files(__name__).joinpath(file).read_bytes()
