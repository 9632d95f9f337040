"""Several servers on one database, as on several machines: each with a data directory, a port and a proxy of its own on the way to the
database. They share the key file, the address under which people know them, and nothing else.
"""

from __future__ import annotations

import textwrap
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from handmade import Handmade
from programs import SOURCE, Program, Server
from silent_proxy import SilentProxy

from tests.free_ports import free_port


@dataclass(kw_only=True)
class ServedNode:
    """One that runs."""

    program: Program
    server: Server
    proxy: SilentProxy
    client: Handmade
    boot: str

    @property
    def url(self) -> str:
        return self.server.url


@dataclass(kw_only=True)
class Nodes:
    """`settings`: what all of them have besides the database, in TOML; `files` lie beside their settings."""

    home: Path
    database: Mapping[str, str]  # as libpq has it
    settings: str = ""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    port: int = field(default_factory=free_port)  # of the address that all of them go by
    ports: dict[str, int] = field(default_factory=dict[str, int])  # that each had, and has again

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def serving(self, name: str, *options: str, command: Sequence[str] = SOURCE) -> Generator[ServedNode]:
        """One more, or one of before in the same place. The first is named `a`: it has the port of the common address."""
        program = self.program(name, command)
        proxy = SilentProxy(program.home / "db", Path(self.database["host"]))
        try:
            port = self.ports.setdefault(name, self.port if name == "a" else free_port())
            with program.serving("--port", str(port), *options) as server:
                boot = server.await_words(r'"boot":"([0-9a-f]+)"')[1]
                server.url = (
                    f"http://127.0.0.1:{port}"  # its own; what it says of itself is the common address
                )
                client = Handmade(server.url)
                try:
                    yield ServedNode(program=program, server=server, proxy=proxy, client=client, boot=boot)
                finally:
                    client.close()
                    proxy.mend()
        finally:
            proxy.close()
            (program.home / "db" / ".s.PGSQL.5432").unlink(missing_ok=True)
            (program.home / "db").rmdir()

    def program(self, name: str, command: Sequence[str] = SOURCE) -> Program:
        """Its folder and settings are there then."""
        folder = self.home / name
        (folder / "notes").mkdir(
            parents=True, exist_ok=True
        )  # a program may make nothing beside the settings
        where = self.database
        (folder / "address").write_text(
            f"postgresql://{where['user']}@/{where['dbname']}?host={folder}/db\n", "utf-8"
        )
        common = f'store = "file:address"\nissuer = "{self.issuer}"\nkey_file = "{self.home}/master.key"\n'
        (folder / "ostiary.toml").write_text(common + textwrap.dedent(self.settings), "utf-8")
        for file, text in self.files.items():
            (folder / file).write_text(text, "utf-8")
        return Program(command=command, home=folder)
