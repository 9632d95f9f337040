"""Every OpenSSL that is inside: found in the files themselves, since not everybody who links one says so."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

# As the library names itself, with its day: "OpenSSL 3.0.19 27 Jan 2026".
_NAMED: Final = re.compile(rb"OpenSSL (\d+\.\d+\.\d+[a-z]?(?:-[a-z0-9]+)?) +\d{1,2} [A-Z][a-z]{2} \d{4}")


def versions(file: Path) -> list[str]:
    """Of the OpenSSL in a file; mostly none."""
    return sorted({found.decode() for found in _NAMED.findall(file.read_bytes())})


def components(files: Iterable[Path], above: str) -> list[dict[str, Any]]:
    """Rows for a bill: each OpenSSL in each file."""
    return [
        {
            "type": "library",
            "bom-ref": f"{above}/{file.name}/openssl@{version}",
            "name": "openssl",
            "version": version,
            "purl": f"pkg:generic/openssl@{version}",
            "description": f"linked into {file.name}",
            "licenses": [{"license": {"id": "Apache-2.0"}}],
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(file.read_bytes()).hexdigest()}],
        }
        for file in files
        for version in versions(file)
    ]
