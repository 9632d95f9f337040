"""What a server has said of itself."""

from __future__ import annotations

from typing import Literal

import msgspec


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    era: Literal["modern", "legacy"]
    version: str
    name: str = ""  # of the program
    title: str = ""  # what people call it
    server_version: str = ""
    description: str = ""
    instructions: str = ""  # for models
