"""Libraries that the executable unpacks when they are first imported (build/late.py)."""

import importlib
import importlib.util
import sys
from collections.abc import Generator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from httptools.parser import url_parser

ROOT = Path(__file__).parent.parent.parent
MODULE = "borrowed.url_parser"
PLACE = "borrowed/url_parser.so"


def late() -> Any:
    spec = importlib.util.spec_from_file_location("late", ROOT / "build" / "late.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def unpacking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[tuple[Any, Path]]:
    """Somebody's extension in pieces, as the spec packs them."""
    data = Path(str(url_parser.__file__)).read_bytes()
    size = len(data) // 3
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    for folder in ("pieces", "borrowed"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("")
    for number, piece in enumerate(pieces):
        (tmp_path / "pieces" / f"file0_{number}.py").write_text(f"DATA = {piece!r}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    unpacked = tmp_path / "unpacked"
    names = tuple(f"pieces.file0_{number}" for number in range(len(pieces)))
    libraries = late().LateLibraries({MODULE: (PLACE, names)}, unpacked)
    monkeypatch.setattr(sys, "meta_path", [libraries, *sys.meta_path])
    yield libraries, unpacked
    for name in [name for name in sys.modules if name.partition(".")[0] in ("borrowed", "pieces")]:
        del sys.modules[name]


def test_a_library_is_unpacked_when_it_is_imported_and_not_before(unpacking: tuple[Any, Path]) -> None:
    _, unpacked = unpacking
    assert not unpacked.exists()
    module = importlib.import_module(MODULE)
    assert module.parse_url(b"http://a/b").path == b"/b"
    assert (unpacked / PLACE).read_bytes() == Path(str(url_parser.__file__)).read_bytes()
    assert [path.name for path in (unpacked / "borrowed").iterdir()] == ["url_parser.so"]
    assert not [name for name in sys.modules if name.startswith("pieces.")]
    assert not [kept for kept in vars(sys.modules["pieces"]).values() if hasattr(kept, "DATA")]


def test_an_import_waits_for_whoever_unpacks_already(
    unpacking: tuple[Any, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries, _ = unpacking
    ahead = Thread(target=libraries.unpack_all)
    ahead.start()
    assert importlib.import_module(MODULE).parse_url(b"http://a/b").host == b"a"
    ahead.join(60)
    assert not ahead.is_alive()


def test_other_modules_are_left_to_other_finders(unpacking: tuple[Any, Path]) -> None:
    libraries, unpacked = unpacking
    assert libraries.find_spec("json") is None
    assert not unpacked.exists()


def test_no_room_is_told_at_the_import_and_not_by_whoever_unpacks_ahead(unpacking: tuple[Any, Path]) -> None:
    libraries, unpacked = unpacking
    unpacked.write_text("a file where the folder should be")
    libraries.unpack_all()
    with pytest.raises(OSError):
        importlib.import_module(MODULE)
