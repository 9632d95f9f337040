"""Over a network nothing but TLS that is verified will do: against a real server with a certificate of an authority of the test's own
(server/cluster/postgres/postgres_address.py)."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from store_engines import NOW

from server.cluster.postgres.postgres import open_postgres_store
from server.cluster.postgres.postgres_address import AddressRefused, parameters_of
from server.store.jobs import CannotOpen, StoreDb
from tests.made_certificates import Authority
from tests.postgres_server import USER, PostgresServer, own_address, server_of_its_own

NAME = "db.example.test"


class Tls:
    """A database server on an address of its own, and who vouches for it."""

    def __init__(self, server: PostgresServer, authority: Authority, address: str, port: int) -> None:
        self.server, self.authority, self._place = server, authority, (address, port)
        self._encrypts: bool | None = None  # None: it does not listen there yet

    def serve(self, *, encrypts: bool) -> None:
        if self._encrypts is encrypts:
            return
        self._encrypts = encrypts
        self.server.stop()
        self.server.listen(*self._place, tls=self.authority.issue(NAME) if encrypts else None)
        self.server.start()

    def address(self, name: str = NAME, more: str = "") -> str:
        """By this name, wherever a name server would lead."""
        at, port = self._place
        return f"postgresql://{USER}:hunter2@{name}:{port}/ostiary_template?hostaddr={at}{more}"


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Generator[Tls]:
    with server_of_its_own() as server:
        yield Tls(server, Authority(tmp_path_factory.mktemp("authority")), *own_address())


async def opened(address: str, ca_file: Path) -> bool:
    """Whether the connection to the database is encrypted. Raises `CannotOpen`, in which no password is."""

    def encrypted(db: StoreDb) -> bool:
        row = db.fetch_one("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
        assert row is not None
        return row["ssl"]

    parameters = parameters_of(address, ca_file=str(ca_file))
    async with open_postgres_store(parameters, clock=lambda: NOW) as store:
        return await store.read(encrypted)


async def refused(address: str, ca_file: Path) -> str:
    """In which words. No password is in them."""
    with pytest.raises(CannotOpen) as caught:
        await opened(address, ca_file)
    said = f"{caught.value} {caught.value.hint}"
    assert "hunter2" not in said
    return said


async def test_a_server_whose_certificate_is_for_its_name_and_of_our_authority_is_let_in(tls: Tls) -> None:
    tls.serve(encrypts=True)
    assert await opened(tls.address(), tls.authority.file) is True


async def test_a_server_with_another_name_is_refused(tls: Tls) -> None:
    tls.serve(encrypts=True)
    said = await refused(tls.address("other.example.test"), tls.authority.file)
    assert f'certificate for "{NAME}" does not match host name "other.example.test"' in said


async def test_a_server_of_another_authority_is_refused(tls: Tls, tmp_path: Path) -> None:
    tls.serve(encrypts=True)
    stranger = Authority(tmp_path, "another authority")
    assert "certificate verify failed" in await refused(tls.address(), stranger.file)


async def test_a_server_without_tls_is_refused(tls: Tls) -> None:
    tls.serve(encrypts=False)
    assert "server does not support SSL" in await refused(tls.address(), tls.authority.file)


@pytest.mark.parametrize("mode", ["disable", "allow", "prefer", "require", "verify-ca"])
async def test_an_address_that_asks_for_less_is_refused_before_anybody_is_asked(tls: Tls, mode: str) -> None:
    address = tls.address(more=f"&sslmode={mode}")
    with pytest.raises(AddressRefused):
        parameters_of(address)
    assert f"sslmode={mode}" in await refused(address, tls.authority.file)


async def test_authorities_that_are_not_there_are_refused_with_words(tls: Tls, tmp_path: Path) -> None:
    tls.serve(encrypts=True)
    assert "missing.pem" in await refused(tls.address(), tmp_path / "missing.pem")
