"""Libraries that a wheel brings in a folder beside it and of which it says nothing: whose each is, and under which licence.

That of psycopg does, as auditwheel packs them: `psycopg_binary.libs/libpq-e9b5c9ac.so.5.18`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from importlib.metadata import Distribution
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import linked

# By the name of the file before its hash: the project, and its licence's name in the list of SPDX.
_KNOWN: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "libcom_err":      ("e2fsprogs and krb5", "MIT"),
        "libcrypt":        ("libxcrypt", "LGPL-2.1-or-later"),
        "libcrypto":       ("openssl", "Apache-2.0"),
        "libgssapi_krb5":  ("krb5", "MIT"),
        "libk5crypto":     ("krb5", "MIT"),
        "libkeyutils":     ("keyutils", "LGPL-2.1-or-later"),
        "libkrb5":         ("krb5", "MIT"),
        "libkrb5support":  ("krb5", "MIT"),
        "liblber":         ("openldap", "OLDAP-2.8"),
        "libldap":         ("openldap", "OLDAP-2.8"),
        "libpq":           ("postgresql", "PostgreSQL"),
        "libsasl2":        ("cyrus-sasl", "BSD-Attribution-HPND-disclaimer"),
        "libssl":          ("openssl", "Apache-2.0"),
    }
)  # fmt: skip
_FILE: Final = re.compile(r"(lib\w+?)-[0-9a-f]{8}\.so(?:\.[\d.]+)?")

# Licences that ask for a text to go with the program, where the package does not bring it.
_TEXTS: Final[Mapping[str, str]] = MappingProxyType(
    {"LGPL-3.0-only": "GPL-3.0.txt", "LGPL-2.1-or-later": "LGPL-2.1.txt"}
)


def libraries(installed: Distribution, above: str) -> list[dict[str, Any]]:
    """Components. Raises `LookupError` at one that nobody knows."""
    found: list[dict[str, Any]] = []
    for file in sorted(map(str, installed.files or ())):
        folder, _, name = file.rpartition("/")
        if not folder.endswith(".libs"):
            continue
        match = _FILE.fullmatch(name)
        if match is None or match[1] not in _KNOWN:
            raise LookupError(f"{file} is inside, and nobody says under which licence")
        project, licence = _KNOWN[match[1]]
        path = Path(str(installed.locate_file(file)))
        content, version = path.read_bytes(), linked.versions(path)
        found.append(
            {
                "bom-ref": f"{above}/{name}",
                "type": "library",
                "name": name,
                **({"version": version[0]} if version else {}),
                "description": f"of {project}",
                "licenses": [{"expression": licence}],
                "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}],
            }
        )
    return found


def texts(component: Mapping[str, Any]) -> list[Path]:
    """What must go with it, besides what it brings itself."""
    inside = [component, *component.get("components", ())]
    said = {each.get("expression", "") for row in inside for each in row.get("licenses", ())}
    return [Path(__file__).parent / "licences" / _TEXTS[each] for each in sorted(said & _TEXTS.keys())]
