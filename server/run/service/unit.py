"""The unit file of a service, as text: what systemd starts, and what it keeps it from.

The needs of an agent's own programs cannot be known here, so some doors stay open where the settings start any (`starts_programs`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from server import __version__

NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,38}")
_SUM: Final = "# sha256 of what follows: "
_PLAIN: Final = re.compile(r"[A-Za-z0-9_@+=:,./-]+")


class ServiceUnit(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    system: bool  # of the machine, else of one user
    command: tuple[str, ...]
    user: str = ""  # of a system service
    one_file: bool = False  # the executable, which unpacks itself
    starts_programs: bool = False
    programs_user: str = ""  # of a system service: as whom its programs run, where that is another
    programs_home: Path | None = None  # of that user, where it is made for the service
    reads_homes: bool = False  # files that settings name lie there
    low_port: bool = False  # a port that only root may listen on
    writes: tuple[Path, ...] = ()  # folders besides its own, for back-ups


def unit_text(unit: ServiceUnit) -> str:
    body = "\n".join(
        [
            "[Unit]",
            "Description=Ostiary, the door in front of an agent",
            "Documentation=man:ostiary(1)",
            *(["Wants=network-online.target", "After=network-online.target"] if unit.system else []),
            "",
            "[Service]",
            *_running(unit),
            "",
            "# What it is kept from. `systemd-analyze security` judges it.",
            *_confined(unit),
            "",
            "[Install]",
            f"WantedBy={'multi-user' if unit.system else 'default'}.target",
            "",
        ]
    )
    systemctl = "systemctl" if unit.system else "systemctl --user"
    head = [
        f"# Written by `ostiary service install`, version {__version__}, which writes it anew.",
        f"# What you want otherwise belongs beside it: {systemctl} edit {unit.name}",
        f"{_SUM}{_digest(body)}",
    ]
    return "\n".join(head) + "\n" + body


def is_as_written(text: str) -> bool:
    """Return whether nobody has changed it since it was written here."""
    head, found, rest = text.partition(_SUM)
    digest, _, body = rest.partition("\n")
    return bool(found) and head.count("\n") == 2 and digest == _digest(body)


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


def _running(unit: ServiceUnit) -> list[str]:
    lines = [
        "Type=notify",
        # Of the executable, the process that serves is not the one that was started.
        f"NotifyAccess={'all' if unit.one_file else 'main'}",
        f"ExecStart={command_line(unit.command)}",
        # Not every system has `kill` as a program; every shell has it.
        "ExecReload=/bin/sh -c 'kill -HUP $MAINPID'",
        # The server alone hears SIGTERM: agents are its own to end, after their last calls.
        "KillMode=mixed",
        "Restart=on-failure",
        "RestartSec=2",
        # Wrong settings, and what stays as it is until somebody mends it.
        "RestartPreventExitStatus=2 78",
        # A large database that is brought up to date by a newer version must not be cut off.
        "TimeoutStartSec=infinity",
        # Secrets that settings refer to as env:NAME, in a file that only root (or you) may read.
        f"EnvironmentFile=-%E/{unit.name}/environment",
        "UMask=0077",
    ]
    if unit.system:
        lines += [
            f"User={unit.user}",
            f"StateDirectory={unit.name}",
            "StateDirectoryMode=0700",
            f"RuntimeDirectory={unit.name}",
            "RuntimeDirectoryMode=0700",
        ]
        if unit.one_file:
            # It unpacks itself where no cleaner of temporary files comes by.
            lines += [
                f"CacheDirectory={unit.name}",
                # What runs Python agents lies there, too.
                f"CacheDirectoryMode={'0711' if unit.programs_user else '0700'}",
                f"Environment=TMPDIR=%C/{unit.name}",
            ]
    if unit.programs_user:
        lines.append(f"Environment=OSTIARY_PROGRAMS_RUN_AS={unit.programs_user}")
    return lines


# In every unit; a user's manager can do these without rights of its own.
_ALWAYS: Final = (
    "NoNewPrivileges=yes",
    "LockPersonality=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "SystemCallArchitectures=native",
    "SystemCallErrorNumber=EPERM",
    "SystemCallFilter=@system-service",
)
# What takes root's rights to set up.
_SYSTEM: Final = (
    "ProtectSystem=strict",
    "PrivateTmp=yes",
    "PrivateDevices=yes",
    "PrivateMounts=yes",
    "DevicePolicy=closed",
    "ProtectClock=yes",
    "ProtectHostname=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "ProtectControlGroups=yes",
    "ProtectProc=invisible",
    "RemoveIPC=yes",
    "KeyringMode=private",
)


def _confined(unit: ServiceUnit) -> list[str]:
    families = "AF_UNIX AF_INET AF_INET6"
    lines = [*_ALWAYS]
    if unit.starts_programs:
        # Node looks at network interfaces, compiles while it runs, and may sandbox what it starts itself.
        lines += ["SystemCallFilter=~@privileged", f"RestrictAddressFamilies={families} AF_NETLINK"]
        if unit.programs_user:
            lines.append("SystemCallFilter=@setuid")
    else:
        lines += [
            "SystemCallFilter=~@privileged @resources",
            f"RestrictAddressFamilies={families}",
            "RestrictNamespaces=yes",
            "MemoryDenyWriteExecute=yes",
        ]
    if not unit.system:
        return lines
    lines += _SYSTEM
    # Agents may lie in somebody's home; nothing is written there.
    lines.append(f"ProtectHome={'read-only' if unit.starts_programs or unit.reads_homes else 'yes'}")
    if not unit.starts_programs:
        lines.append("ProcSubset=pid")
    rights = ["CAP_NET_BIND_SERVICE"] if unit.low_port else []
    # To start programs as another user, and to end them.
    rights += ["CAP_SETUID", "CAP_SETGID", "CAP_KILL"] if unit.programs_user else []
    if rights:
        lines += [f"CapabilityBoundingSet={' '.join(rights)}", f"AmbientCapabilities={' '.join(rights)}"]
    else:
        lines += ["CapabilityBoundingSet=", "PrivateUsers=yes"]
    writes = [*unit.writes, *([unit.programs_home] if unit.programs_home else [])]
    return lines + [f"ReadWritePaths={_quoted(str(path))}" for path in writes]


def command_line(words: Sequence[str]) -> str:
    """Return it as systemd.service(5) reads it: words quoted where they need it, and nothing expanded."""
    program, *rest = words
    return " ".join([_quoted(program), *(_quoted(word.replace("$", "$$")) for word in rest)])


def _quoted(word: str) -> str:
    escaped = word.replace("%", "%%")
    if _PLAIN.fullmatch(word):
        return escaped
    return (
        '"'
        + escaped.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
        + '"'
    )
