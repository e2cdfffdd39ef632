"""A file that lies elsewhere: read in ranges, and from its copy on this machine once there is one."""

from __future__ import annotations

from .files import File

PIECE = 4 << 20  # bytes asked for at once, where a caller wants more


class RangedFile(File):
    """What such files have in common. Each kind has a ``read`` of its own, and sets ``_local`` when it has a copy."""

    __slots__ = ("_local",)

    def __init__(self, shown: str, size: int) -> None:
        self._fd = -1
        self._local: File | None = None
        self.path = shown
        self.size = size
        self._identity = (size, 0)

    def close(self) -> None:
        local, self._local = getattr(self, "_local", None), None
        if local is not None:
            local.close()

    def check_unchanged(self) -> None:
        """What is read in ranges is of one version, against which each answer is held; a copy is as any file."""
        if self._local is not None:
            self._local.check_unchanged()

    def read_into(self, offset: int, buffer: memoryview) -> None:
        done, total = 0, len(buffer)
        self._bounds(offset, total)
        while done < total:
            piece = self.read(offset + done, min(total - done, PIECE))
            buffer[done : done + len(piece)] = piece
            done += len(piece)

    def copy_to(self, offset: int, nbytes: int, fd: int, at: int) -> int:
        return 0  # nothing that a kernel could copy from
