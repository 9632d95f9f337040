"""What a function hands back besides plain values: blocks of content, messages of a prompt, progress, a whole result."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union

from .media import Pathlike, bounded, is_text, media_type_named, media_type_of, read_file

Wire = dict[str, Any]
Meta = Mapping[str, Any]

# What the wire calls the fields of annotations, beside what Python would.
_CAMEL = {"last_modified": "lastModified"}


class Content:
    """One block. `annotations`: `audience` (of "user", "assistant"), `priority` (0 to 1), `last_modified` (ISO 8601)."""

    def __init__(self, annotations: Meta | None, meta: Meta | None) -> None:
        self.annotations = annotations
        self.meta = meta

    def fields(self) -> Wire:
        raise NotImplementedError

    def wire(self) -> Wire:
        found = self.fields()
        if self.annotations is not None:
            found["annotations"] = {_CAMEL.get(name, name): value for name, value in self.annotations.items()}
        if self.meta is not None:
            found["_meta"] = dict(self.meta)
        return found


class Text(Content):
    def __init__(self, text: str, *, annotations: Meta | None = None, meta: Meta | None = None) -> None:
        super().__init__(annotations, meta)
        self.text = text

    def fields(self) -> Wire:
        return {"type": "text", "text": self.text}


class _Media(Content):
    """Bytes, text in base64, or a file by its path; the media type is read from the first bytes, then from the file's name, unless it is
    given, whole or as a format ("png")."""

    kind = ""

    def __init__(
        self,
        data: bytes | bytearray | str | None = None,
        mime_type: str | None = None,
        *,
        path: Pathlike | None = None,
        format: str | None = None,  # noqa: A002
        annotations: Meta | None = None,
        meta: Meta | None = None,
    ) -> None:
        super().__init__(annotations, meta)
        self.data = base64_of(given_data(type(self).__name__, data, path))
        self.mime_type = mime_type or _of_format(self.kind, format) or media_type_of(self.data)
        if self.mime_type is None and path is not None:
            named = media_type_named(path)
            self.mime_type = named if named is not None and named.startswith(f"{self.kind}/") else None
        if self.mime_type is None:
            raise ValueError(f"what kind of {self.kind} is this? Say it: mime_type={self.kind + '/…'!r}")

    def fields(self) -> Wire:
        return {"type": self.kind, "data": self.data, "mimeType": self.mime_type}


class Image(_Media):
    kind = "image"


class Audio(_Media):
    kind = "audio"


class Embedded(Content):
    """A resource with its content: `text` or `blob`."""

    def __init__(
        self,
        uri: str,
        *,
        text: str | None = None,
        blob: bytes | bytearray | str | None = None,
        mime_type: str | None = None,
        annotations: Meta | None = None,
        meta: Meta | None = None,
    ) -> None:
        super().__init__(annotations, meta)
        if (text is None) == (blob is None):
            raise ValueError("Embedded takes either text= or blob=")
        self.resource: Wire = {"uri": uri}
        if mime_type is not None:
            self.resource["mimeType"] = mime_type
        if text is not None:
            self.resource["text"] = text
        elif blob is not None:
            self.resource["blob"] = base64_of(blob)

    def fields(self) -> Wire:
        return {"type": "resource", "resource": self.resource}


class File(Embedded):
    """A file as a whole, from its path or from bytes: text where its kind is one, else a blob. The caller sees its name, not where
    it is kept."""

    def __init__(
        self,
        path: Pathlike | None = None,
        *,
        data: bytes | bytearray | str | None = None,
        name: str | None = None,
        mime_type: str | None = None,
        format: str | None = None,  # noqa: A002
        annotations: Meta | None = None,
        meta: Meta | None = None,
    ) -> None:
        content = given_data("File", data, path)
        name = name or (os.path.basename(os.fspath(path)) if path is not None else "file")
        mime_type = mime_type or _of_format("application", format) or media_type_named(name)
        text = content if isinstance(content, str) else _text_of(content, mime_type)
        super().__init__(
            f"file:///{_quoted(name)}",
            text=text,
            blob=None if text is not None or isinstance(content, str) else content,
            mime_type=mime_type or ("text/plain" if text is not None else "application/octet-stream"),
            annotations=annotations,
            meta=meta,
        )


class Link(Content):
    """A resource that the caller can read by itself."""

    def __init__(
        self,
        uri: str,
        name: str,
        *,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        icons: Sequence[str | Meta] | None = None,
        annotations: Meta | None = None,
        meta: Meta | None = None,
    ) -> None:
        super().__init__(annotations, meta)
        self.link: Wire = given(
            uri=uri,
            name=name,
            title=title,
            description=description,
            mimeType=mime_type,
            size=size,
            icons=icons_of(icons),
        )

    def fields(self) -> Wire:
        return {"type": "resource_link", **self.link}


Part = Union[str, Content]
Role = Literal["user", "assistant"]


class Message:
    """One turn of a conversation; several parts become several messages of the same role."""

    def __init__(self, role: Role, *parts: Part) -> None:
        self.role = role
        self.parts = parts

    def wire(self) -> list[Wire]:
        return [{"role": self.role, "content": block_of(part)} for part in self.parts]


def user(*parts: Part) -> Message:
    return Message("user", *parts)


def assistant(*parts: Part) -> Message:
    return Message("assistant", *parts)


class Progress:
    """Yielded by a generator: how far the work is, and what it is doing."""

    def __init__(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        self.progress = progress
        self.total = total
        self.message = message


class Result:
    """A tool's answer in every detail: blocks, structured content, whether it is an error, and `_meta`."""

    def __init__(
        self,
        content: Part | Sequence[Part] | None = None,
        *,
        structured: Any = ...,
        is_error: bool = False,
        meta: Meta | None = None,
    ) -> None:
        self.content = content
        self.structured = structured  # `...`: none, since None is a value
        self.is_error = is_error
        self.meta = meta


def block_of(part: Any) -> Wire:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if isinstance(part, Content):
        return part.wire()
    if isinstance(part, (bytes, bytearray)):
        return content_of(part).wire()
    raise TypeError(
        f"{type(part).__name__} is no content: use str, Text, Image, Audio, File, Embedded or Link"
    )


def content_of(data: bytes | bytearray) -> Content:
    """An image or a sound by its first bytes, else a file."""
    kind = media_type_of(base64.b64encode(data[:18]).decode("ascii")) or ""
    if kind.startswith("image/"):
        return Image(data)
    return Audio(data) if kind.startswith("audio/") else File(data=data, name="data.bin")


def _of_format(kind: str, name: str | None) -> str | None:
    return f"{kind}/{name.lower()}" if name else None


def given_data(
    what: str, data: bytes | bytearray | str | None, path: Pathlike | None
) -> bytes | bytearray | str:
    """Raises `ValueError` for too much of it."""
    if (data is None) == (path is None):
        raise ValueError(f"{what} takes either data or path=")
    if path is not None:
        return read_file(path)
    assert data is not None
    return data if isinstance(data, str) else bounded(data, what)


def _quoted(name: str) -> str:
    from urllib.parse import quote  # only those who send files need it

    return quote(name)


def _text_of(content: bytes | bytearray, mime_type: str | None) -> str | None:
    """Where it is said to be text, and is."""
    if not is_text(mime_type):
        return None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def base64_of(data: bytes | bytearray | str) -> str:
    if isinstance(data, str):
        try:
            base64.b64decode(data, validate=True)
        except ValueError as error:
            raise ValueError("text given as data must be base64; for other data, give bytes") from error
        return data
    return base64.b64encode(data).decode("ascii")


def icons_of(icons: Sequence[str | Meta] | None) -> list[Wire] | None:
    """An icon is an address, or an object with `src` and `mimeType`, `sizes`, `theme` as far as known."""
    if icons is None:
        return None
    return [
        {"src": icon}
        if isinstance(icon, str)
        else {("mimeType" if name == "mime_type" else name): value for name, value in icon.items()}
        for icon in icons
    ]


def given(**fields: Any) -> Wire:
    """Without those that are None."""
    return {name: value for name, value in fields.items() if value is not None}
