"""Libraries that read what is not read here (the extra scan-extra): in a process of their own, with limits.

A hostile file may crash, hang or fill a C library. So it runs in a child that imports nothing of ours, in isolated
mode, and whatever goes wrong there makes the file ``unreadable``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from .. import trees
from ..errors import ArtifactkitError, Unreadable
from ..files import Bytes, File, Window, file_of
from .piece import Piece

SECONDS = 5  # of which a start takes one; and a second more for each
BYTES_A_SECOND = 4 << 20
MEMORY = 2 << 30
MAX_ANSWER = 64 << 20
MAX_COPY = 4 << 30

_PROLOGUE = f"""
import json, sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except (ImportError, ValueError, OSError):
    pass
sys.dont_write_bytecode = True
"""
HDF5 = (
    _PROLOGUE
    + """
import io, h5py
path, start, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
class Part(io.RawIOBase):
    def __init__(self):
        self.f, self.at = open(path, "rb"), 0
    def readable(self): return True
    def seekable(self): return True
    def tell(self): return self.at
    def seek(self, to, whence=0):
        self.at = to + (0, self.at, size)[whence]
        return self.at
    def readinto(self, into):
        self.f.seek(start + self.at)
        got = self.f.read(max(0, min(len(into), size - self.at)))
        into[: len(got)] = got
        self.at += len(got)
        return len(got)
out, total = [], 0
def say(kind, path, name="", files=(), text=""):
    global total
    total += len(text) + 100
    if total > 60_000_000 or len(out) > 500_000:
        raise SystemExit("too much")
    out.append({"kind": kind, "path": path, "name": name, "files": list(files), "text": text})
def words(value):
    if isinstance(value, bytes): return [value.decode("utf-8", "surrogateescape")]
    if isinstance(value, str): return [value]
    if hasattr(value, "dtype") and value.dtype.kind in "SOUV":
        return [w for item in value.reshape(-1).tolist() for w in words(item)]
    return []
with h5py.File(io.BufferedReader(Part()), "r") as f:
    seen, todo = set(), [("/", f["/"])]
    while todo:
        path, obj = todo.pop()
        info = h5py.h5o.get_info(obj.id)
        if info.addr in seen: continue
        seen.add(info.addr)
        for name in obj.attrs:
            for text in words(obj.attrs[name]): say("attribute", path, name, (), text)
        if isinstance(obj, h5py.Dataset):
            if obj.external: say("external", path, files=[e[0] for e in obj.external])
            if obj.is_virtual: say("virtual", path, files=[s.file_name for s in obj.virtual_sources()])
        elif isinstance(obj, h5py.Group):
            for name in obj:
                link = obj.get(name, getlink=True)
                place = path.rstrip("/") + "/" + name
                if isinstance(link, h5py.ExternalLink): say("link", place, files=[link.filename], text=link.path)
                elif isinstance(link, h5py.HardLink): todo.append((place, obj[name]))
json.dump(out, sys.stdout)
"""
)
SEVENZIP = (
    _PROLOGUE
    + """
import py7zr
from py7zr.io import Py7zIO, WriterFactory
path, folder, limit = sys.argv[1], sys.argv[2], int(sys.argv[3])
out, used = [], [0]
class Writer(Py7zIO):
    def __init__(self, name):
        self.name = f"{len(out)}"
        out.append([name, self.name])
        self.f, self.n = open(folder + "/" + self.name, "w+b"), 0
    def write(self, data):
        used[0] += len(data)
        if used[0] > limit: raise SystemExit("too much")
        self.n += len(data)
        return self.f.write(data)
    def read(self, size=None): return self.f.read() if size is None else self.f.read(size)
    def seek(self, offset, whence=0): return self.f.seek(offset, whence)
    def flush(self): return self.f.flush()
    def size(self): return self.n
class Factory(WriterFactory):
    def create(self, filename):
        if len(out) > 100_000: raise SystemExit("too many")
        return Writer(filename)
with py7zr.SevenZipFile(path, "r") as archive:
    if archive.needs_password():
        raise SystemExit("a password is needed")
    names = archive.getnames()
    archive.extractall(factory=Factory())
json.dump({"names": names, "members": out}, sys.stdout)
"""
)


def _run(script: str, arguments: list[str], what: str, size: int) -> object:
    seconds = SECONDS + size // BYTES_A_SECOND
    command = [sys.executable, "-I", "-c", script, *arguments]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise Unreadable(f"{what} did not finish with this file in {seconds} seconds") from None
    except OSError as error:
        raise Unreadable(f"cannot start a process to read this file: {error.strerror}") from None
    if done.returncode or len(done.stdout) > MAX_ANSWER:
        last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
        raise Unreadable(f"{what} cannot read this file: {last or f'exit {done.returncode}'}")
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise Unreadable(f"{what} gave no answer about this file") from None


def has(module: str) -> bool:
    """Whether a library is installed; it is not imported."""
    return importlib.util.find_spec(module) is not None


def _missing(what: str, module: str) -> Unreadable:
    return Unreadable(f"{what}: {module} is needed to look into it", hint="pip install 'artifactkit[scan-extra]'")


@contextmanager
def scratch() -> Iterator[str]:
    """A temporary folder. Unreadable where there is no room for it, or in it."""
    try:
        with tempfile.TemporaryDirectory(prefix="artifactkit-") as folder:
            yield folder
    except OSError as error:
        raise Unreadable(
            f"cannot write to the temporary folder: {error.strerror}",
            hint="free some space, or set TMPDIR to a larger disk",
        ) from error


def hdf5(piece: Piece, error: ArtifactkitError) -> Iterator[dict[str, object]]:
    """What h5py finds in ``piece``: links, attributes, storage. ``error`` says why it is asked."""
    if not has("h5py"):
        raise _missing(error.what, "h5py")
    with scratch() as folder:
        path, start = _place(piece.data, folder)
        found = _run(HDF5, [path, str(start), str(piece.size)], "h5py", piece.size)
    for entry in found if isinstance(found, list) else []:
        if isinstance(entry, dict):
            yield entry


def sevenzip(piece: Piece, folder: str, limit: int) -> tuple[list[str], list[tuple[str, str]]]:
    """(names of all members, (name, path of its content) of the files), unpacked into ``folder`` under our names."""
    if not has("py7zr"):
        raise _missing("a 7z archive", "py7zr")
    path, start = _place(piece.data, folder)
    if start or os.path.getsize(path) != piece.size:
        path = _copy(piece.data, folder)
    inner = os.path.join(folder, "members")
    os.mkdir(inner)
    found = _run(SEVENZIP, [path, inner, str(limit)], "py7zr", piece.size)
    if not isinstance(found, dict):
        raise Unreadable("py7zr gave no answer about this file")
    members = [(str(name), os.path.join(inner, str(int(number)))) for name, number in found["members"]]
    return [str(name) for name in found["names"]], members


def _place(data: Bytes, folder: str) -> tuple[str, int]:
    """The path and offset of ``data`` on the disk; a copy in ``folder`` where it is nowhere as it is."""
    file = file_of(data)
    if file is not None and trees.find(file.path) is not None:
        return _copy(data, folder), 0
    if isinstance(data, File):
        return os.path.abspath(data.path), 0
    if isinstance(data, Window):
        return os.path.abspath(data.file.path), data.start
    return _copy(data, folder), 0


def _copy(data: Bytes, folder: str) -> str:
    if data.size > MAX_COPY:
        raise Unreadable("too large to be handed to a library")
    path = os.path.join(folder, "copy")
    with open(path, "wb") as out:
        for at in range(0, data.size, 1 << 20):
            out.write(data.read(at, min(1 << 20, data.size - at)))
    return path
