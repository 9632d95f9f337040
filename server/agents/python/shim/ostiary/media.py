"""Files and bytes on their way into an answer: what kind of media they are, and how large they may be."""

from __future__ import annotations

import base64
import os
import stat
from typing import Union

Pathlike = Union[str, os.PathLike[str]]

# In base64, with what is around it, this fills a line between worker and server. No model reads more.
MOST_BYTES = 6_000_000
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", 0, "image/png"),
    (b"\xff\xd8\xff", 0, "image/jpeg"),
    (b"GIF8", 0, "image/gif"),
    (b"WEBP", 8, "image/webp"),
    (b"WAVE", 8, "audio/wav"),
    (b"OggS", 0, "audio/ogg"),
    (b"fLaC", 0, "audio/flac"),
    (b"ID3", 0, "audio/mpeg"),
    (b"\xff\xfb", 0, "audio/mpeg"),
)
# What Python's own table lacks in some of its versions, or leaves to the machine.
_BY_EXTENSION = {
    ".avif": "image/avif",
    ".flac": "audio/flac",
    ".jsonl": "application/jsonl",
    ".m4a": "audio/mp4",
    ".md": "text/markdown",
    ".mp3": "audio/mpeg",
    ".ogg": "audio/ogg",
    ".opus": "audio/opus",
    ".toml": "application/toml",
    ".wav": "audio/wav",
    ".webp": "image/webp",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}
_TEXTS = ("application/json", "application/jsonl", "application/toml", "application/xml", "application/yaml")


def read_file(path: Pathlike) -> bytes | bytearray:
    """Raises `ValueError` for what is no file, or too large for an answer, and `OSError`."""
    name: str = os.path.basename(os.fspath(path))
    with open(path, "rb", opener=_opened) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(f"{name} is no ordinary file")
        data = file.read(MOST_BYTES + 1)
    return bounded(data, name)


def _opened(path: str, flags: int) -> int:
    # A pipe without anybody at its other end would be waited for.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def bounded(data: bytes | bytearray, name: str) -> bytes | bytearray:
    if len(data) > MOST_BYTES:
        raise ValueError(
            f"{name} has more than {MOST_BYTES // 1_000_000} MB, the most that goes into an answer: return a Link to it"
        )
    return data


def media_type_of(data: str) -> str | None:
    """By the first bytes of what is base64 here."""
    head = base64.b64decode(data[:24])
    for magic, offset, media_type in _MAGIC:
        if head[offset : offset + len(magic)] == magic:
            return media_type
    return None


def media_type_named(name: Pathlike) -> str | None:
    """By the extension."""
    text = os.fspath(name)
    known = _BY_EXTENSION.get(os.path.splitext(text)[1].lower())
    if known is not None:
        return known
    import mimetypes  # some milliseconds, for those who need it

    return mimetypes.guess_type(text)[0]


def is_text(media_type: str | None) -> bool:
    return media_type is not None and (media_type.startswith("text/") or media_type in _TEXTS)
