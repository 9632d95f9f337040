"""Whose certificates are accepted."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from server.lib.http_client.trusted_roots import system_trust, trust_in
from tests.made_certificates import write_certificate


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    return write_certificate(tmp_path, "authority", host="a.example")[0]


def names(context: ssl.SSLContext) -> int:
    return len(context.get_ca_certs())


def test_every_certificate_is_checked_against_its_name(authority: Path) -> None:
    for context in (system_trust(), trust_in(authority)):
        assert context.check_hostname
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_a_file_of_authorities_is_the_only_one(authority: Path) -> None:
    assert names(trust_in(authority)) == 1


def test_the_environment_names_other_authorities_than_the_systems(
    authority: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    assert names(system_trust()) == 1
    monkeypatch.delenv("SSL_CERT_FILE")
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "empty"))
    assert names(system_trust()) == 0


def test_without_openssls_own_authorities_those_of_the_distribution_are_found(
    authority: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    nowhere = str(tmp_path / "nowhere")
    (tmp_path / "unhashed").mkdir()
    (tmp_path / "unhashed" / "authority.pem").write_bytes(authority.read_bytes())
    for folder in (nowhere, str(tmp_path / "unhashed")):
        paths = ssl.DefaultVerifyPaths(None, None, "F", nowhere, "D", folder)  # type: ignore[call-arg]
        monkeypatch.setattr(ssl, "get_default_verify_paths", lambda paths=paths: paths)
        monkeypatch.setattr("server.lib.http_client.trusted_roots._BUNDLES", (nowhere, str(authority)))
        assert names(system_trust()) == 1
