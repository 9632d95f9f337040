"""The key file (server/store/keyfile.py)."""

from __future__ import annotations

import copy
import pickle
import stat
from functools import partial
from pathlib import Path

import pytest
from store_engines import AnyStore

from server.store import meta_rows
from server.store.jobs import StatementRefused
from server.store.keyfile import KeyRefused, MasterKey, bind_key, new_key_text, open_key, parse


def fixed(length: int) -> bytes:
    return bytes(range(length))


def other(length: int) -> bytes:
    return bytes(reversed(range(length)))


open_fixed = partial(open_key, random_bytes=fixed, environment={})


def test_a_first_start_makes_a_private_key_file_and_the_next_reads_the_same_key(tmp_path: Path) -> None:
    path = tmp_path / "master.key"
    made = open_fixed(path, known_fingerprint=None)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["master.key"]
    again = open_key(path, known_fingerprint=made.fingerprint, random_bytes=other, environment={})
    assert again.fingerprint == made.fingerprint
    assert again.subkey("user-code/1") == made.subkey("user-code/1")


def test_a_path_may_begin_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    made = open_fixed("~/master.key", known_fingerprint=None)
    assert open_fixed("file:~/master.key", known_fingerprint=made.fingerprint).id == made.id
    assert [file.name for file in tmp_path.iterdir()] == ["master.key"]


def test_a_missing_key_with_a_known_database_is_refused_and_no_new_one_is_made(tmp_path: Path) -> None:
    path = tmp_path / "master.key"
    with pytest.raises(KeyRefused, match="missing") as caught:
        open_fixed(path, known_fingerprint="000102030405:abc")
    assert "000102030405" in (caught.value.hint or "")
    assert not path.exists()


def test_a_different_key_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "master.key"
    path.write_text(new_key_text(other))
    path.chmod(0o600)
    before = path.read_text()
    known = parse(new_key_text(fixed), "here").fingerprint
    with pytest.raises(KeyRefused, match="not this database's key"):
        open_fixed(path, known_fingerprint=known)
    assert path.read_text() == before


def test_a_key_of_which_a_letter_was_changed_is_said_to_be_damaged(tmp_path: Path) -> None:
    path = tmp_path / "master.key"
    text = new_key_text(fixed)
    path.write_text(text[:-2] + ("A" if text[-2] != "A" else "B") + text[-1])
    path.chmod(0o600)
    with pytest.raises(KeyRefused, match="its secret half is not") as caught:
        open_fixed(path, known_fingerprint=parse(text, "here").fingerprint)
    assert "back-up" in (caught.value.hint or "")
    assert caught.value.lasting


def test_a_file_with_the_same_id_but_another_secret_is_a_different_key() -> None:
    one, two = MasterKey("000102030405", fixed(32)), MasterKey("000102030405", other(32))
    assert one.fingerprint != two.fingerprint


@pytest.mark.parametrize(
    "content", ["", "secret", "ostiary-key-1:000102030405:short", "ostiary-key-2:" + "0" * 56, "\xff"]
)
def test_what_is_no_key_is_refused_without_being_shown_or_replaced(tmp_path: Path, content: str) -> None:
    path = tmp_path / "master.key"
    path.write_text(content, encoding="latin-1")
    path.chmod(0o600)
    with pytest.raises(KeyRefused) as caught:
        open_fixed(path, known_fingerprint=None)
    assert not content or content not in str(caught.value)
    assert path.read_text(encoding="latin-1") == content


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_key_file_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "master.key"
    open_fixed(path, known_fingerprint=None)
    path.chmod(mode)
    with pytest.raises(KeyRefused, match=f"{mode:04o}") as caught:
        open_fixed(path, known_fingerprint=None)
    assert caught.value.hint == f"chmod 600 {path}"


def test_a_key_file_that_is_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyRefused):
        open_fixed(tmp_path, known_fingerprint=None)


def test_a_key_file_that_cannot_be_made_is_an_error_by_name(tmp_path: Path) -> None:
    with pytest.raises(KeyRefused, match=r"missing/master\.key"):
        open_fixed(tmp_path / "missing" / "master.key", known_fingerprint=None)


def test_the_key_may_live_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.key"
    made = open_fixed(f"file:{path}", known_fingerprint=None)
    environment = {"OSTIARY_KEY": path.read_text()}
    lent = open_key(
        "env:OSTIARY_KEY", known_fingerprint=made.fingerprint, random_bytes=other, environment=environment
    )
    assert lent.subkey("user-code/1") == made.subkey("user-code/1")


@pytest.mark.parametrize("known", [None, "000102030405:abc"])
def test_an_unset_variable_is_refused_whether_or_not_a_database_is_there(known: str | None) -> None:
    with pytest.raises(KeyRefused, match="OSTIARY_KEY"):
        open_fixed("env:OSTIARY_KEY", known_fingerprint=known)


def test_subkeys_differ_by_purpose_by_id_and_from_the_fingerprint() -> None:
    key = parse(new_key_text(fixed), "here")
    derived = [key.subkey("user-code/1"), key.subkey("user-code/2"), key.subkey("refresh/1")]
    assert len(set(derived)) == 3
    assert {len(each) for each in derived} == {32}
    assert not any(each.hex().startswith(key.fingerprint.partition(":")[2]) for each in derived)


def test_a_subkey_never_changes_between_versions() -> None:
    # Were it to, every sealed value and every user code would be lost by an upgrade.
    key = MasterKey("000102030405", fixed(32))
    assert (
        key.subkey("user-code/1").hex() == "ef1d66fb3d1c6a76ca2d3fcb5194753d8c1e0d73e291e91e290ce237c55a5228"
    )
    assert key.fingerprint == "000102030405:81dbad6064f6d08174a6d7dd686db710"


@pytest.mark.parametrize("purpose", ["user-code", "user-code/0", "User/1", "", "a/1 ", "a/1\n"])
def test_a_purpose_without_a_name_and_an_id_is_refused(purpose: str) -> None:
    with pytest.raises(ValueError, match="purpose"):
        parse(new_key_text(fixed), "here").subkey(purpose)


def test_a_key_shows_nothing_of_itself_and_is_not_copied() -> None:
    key = parse(new_key_text(fixed), "here")
    secret = fixed(32)
    for shown in (repr(key), str(key), f"{key}", key.fingerprint):
        assert secret.hex() not in shown
        assert new_key_text(fixed).rpartition(":")[2] not in shown
    for way in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            way(key)


async def test_a_database_is_bound_to_its_first_key(store: AnyStore) -> None:
    first, second = MasterKey("000102030405", fixed(32)), MasterKey("000102030405", other(32))
    assert await store.read(partial(meta_rows.get, key=meta_rows.KEY_FINGERPRINT)) is None
    with pytest.raises(StatementRefused):  # its trail begins with it, and cannot yet
        await store.write(partial(bind_key, fingerprint=first.fingerprint))
    store.chain_audit(first.subkey("audit-chain/1"))
    await store.write(partial(bind_key, fingerprint=first.fingerprint))
    await store.write(partial(bind_key, fingerprint=first.fingerprint))
    with pytest.raises(KeyRefused):
        await store.write(partial(bind_key, fingerprint=second.fingerprint))
    assert await store.read(partial(meta_rows.get, key=meta_rows.KEY_FINGERPRINT)) == first.fingerprint
