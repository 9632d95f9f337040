"""An archive whose bytes follow from what is in it: names in order, nobody's user, one time.

usage: python build/packing.py ARCHIVE.tar.gz FOLDER EPOCH
"""

from __future__ import annotations

import gzip
import sys
import tarfile
from pathlib import Path


def pack(archive: Path, folder: Path, epoch: int) -> None:
    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = epoch
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        return entry

    with (
        archive.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=raw, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in sorted([folder, *folder.rglob("*")]):
            tar.add(path, str(path.relative_to(folder.parent)), recursive=False, filter=plain)


if __name__ == "__main__":
    pack(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
