"""Keeps the machine's memory full of pages that cost nothing to take, so that no broker pays the host for new ones.

Called before every measurement. A virtual machine gives free memory back to its host, and the first byte written to
such a page later costs some 9 us instead of 0.1: what one broker wrote at 1,600 MB/s in one round it wrote at 340 in
the next, by chance. A machine that has been up for a while has no free memory, it has a page cache; so we make one, of
a file without contents, and the kernel takes a broker's pages out of that.
"""

from __future__ import annotations

import os
from pathlib import Path

MIB = 1 << 20
LEFT_FREE = 400 * MIB
STEP = 64 * MIB


class PageCache:
    """Fills what is free, again and again: files that were deleted leave free memory behind."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "nothing"
        self._at = 0

    def fill(self) -> None:
        """Read of a sparse file as much as there is free memory; nothing where the system does not say."""
        most = _of_meminfo("MemTotal")
        if not most:
            return
        with self._file.open("ab") as file:
            file.truncate(2 * most)
        into = bytearray(MIB)
        read = 0
        with self._file.open("rb", buffering=0) as file:
            while read < most and _of_meminfo("MemFree") > LEFT_FREE:
                for _ in range(STEP // MIB):
                    os.preadv(file.fileno(), [into], self._at)
                    self._at = (self._at + MIB) % (2 * most)
                read += STEP


def take_pages(folder: Path, size: int) -> None:
    """Make the pages that so many bytes will take the machine's own, for the next two seconds.

    What was deleted meanwhile is given back to the host too: 1 KiB written cost 0.2 us of the kernel's or 2.3.
    """
    file = folder / "pages"
    block = bytes(MIB)
    with file.open("wb", buffering=0) as out:
        for _ in range(-(-size // MIB)):
            out.write(block)
    file.unlink()


def _of_meminfo(name: str) -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:")), 0)
