"""Tar archives: every member is looked into, links and names that leave the folder are said.

torch 0.1 wrote checkpoints as tar; two of its members hold pickles with raw numbers between them.
"""

from __future__ import annotations

from ..containers.tar import Tar, TarMember
from ..errors import ArtifactkitError, Corrupt, LimitExceeded, Truncated
from ..files import Bytes, part
from .model import Rule
from .paths import unsafe_path
from .pickle_judge import Judge
from .pickled import report, run_of
from .piece import Piece
from .rules import LIMIT
from .zipped import LINK, PATH

DUPLICATE = Rule(
    "tar-readers-disagree", "malicious", "two members have one name",
    "one reader takes the first, another the last", "do not load this file; get it from a producer you trust",
)  # fmt: skip
EXTRA = Rule(
    "tar-extra-bytes", "suspicious", "there are bytes after the end of the archive",
    "a file can be two files at once; another program may read the other one",
    "get the file again from its producer, or repack it with a plain tar tool",
)  # fmt: skip
RULES = (DUPLICATE, EXTRA)

TORCH = frozenset({"pickle", "tensors", "storages"})


def scan(piece: Piece, kind: str) -> None:
    """Look into every member."""
    data = piece.data
    try:
        archive = Tar(data)
    except ArtifactkitError as error:
        _first_members(piece, error)
        return
    names = {member.name for member in archive.members}
    torch = names >= TORCH
    if torch and piece.depth == 0 and "tar" in piece.report.formats:
        piece.report.formats[piece.report.formats.index("tar")] = "torch-tar"
    seen: set[str] = set()
    for member in archive.members:
        plain = member.name.removeprefix("./")
        if plain in seen and member.kind == "file":
            piece.find(DUPLICATE, "two members have one name", member=member.name, offset=member.header_offset)
        seen.add(plain)
        _path(piece, member)
    if archive.trailing:
        piece.find(EXTRA, f"{archive.trailing} bytes that are no padding follow the archive's end")
        _beyond(piece, archive)
    for member in archive.members:
        if not member.size or member.kind == "folder":
            continue
        container = "torch-tar" if torch else "tar"
        inner = piece.inner(part(data, member.offset, member.size, member.name), member.name, container)
        if torch and plain_name(member) in ("storages", "tensors"):
            try:
                _torch(inner, plain_name(member))
            except ArtifactkitError as error:
                inner.unreadable(error)
        else:
            piece.look(inner)


def plain_name(member: TarMember) -> str:
    return member.name.removeprefix("./")


def _path(piece: Piece, member: TarMember) -> None:
    if unsafe_path(member.name):
        piece.find(PATH, f"the member {member.name[:200]} would be unpacked outside the folder", member=member.name)
    if member.kind in ("symbolic link", "hard link"):
        folder = "" if member.kind == "hard link" else member.name.rpartition("/")[0]
        outside = unsafe_path(member.link) or unsafe_path(f"{folder}/{member.link}" if folder else member.link)
        piece.find(LINK, f"the member is a {member.kind} to {member.link[:200]}", member=member.name,
                   severity="malicious" if outside else None)  # fmt: skip
    elif member.kind not in ("file", "folder", "sparse file"):
        piece.find(LINK, f"the member is a {member.kind}", member=member.name)


def _beyond(piece: Piece, archive: Tar) -> None:
    """A second archive behind the end mark, which readers that ignore zeros go on into."""
    last = max((m.offset + (m.size + 511) // 512 * 512 for m in archive.members), default=0)
    at = last
    while at + 512 <= piece.size:
        if piece.data.read(at, 512).strip(b"\0"):
            break
        at += 512
    if at + 512 <= piece.size:
        piece.look(piece.inner(part(piece.data, at, piece.size - at), "(after the archive)", "tar"))


def _first_members(piece: Piece, error: ArtifactkitError) -> None:
    """The archive is damaged: look into the members up to there, one by one, and say so."""
    at, data = 0, piece.data
    for _ in range(10_000):
        try:
            size, name = _member(data, at)
        except ArtifactkitError:
            break
        if size:
            available = min(size, data.size - at - 512)
            piece.look(piece.inner(part(data, at + 512, available, name), name, "tar"))
        at += 512 + (size + 511) // 512 * 512
    piece.unreadable(error, LIMIT) if isinstance(error, LimitExceeded) else piece.unreadable(error)


def _member(data: Bytes, at: int) -> tuple[int, str]:
    """Size and name by the header at ``at``, whatever its sum."""
    if at + 512 > data.size:
        raise Truncated("the tar archive ends within a header", offset=at)
    header = data.read(at, 512)
    digits = header[124:136].strip(b" \0")
    if not header.strip(b"\0") or not digits or digits.strip(b"01234567"):
        raise Corrupt("no tar header", offset=at)
    return int(digits, 8), header[:100].split(b"\0")[0].decode("utf-8", "replace")


def _torch(piece: Piece, name: str) -> None:
    """``storages``: a count, then for each a pickle (key, location, class), an int64 count and the elements; then the
    views. ``tensors``: a count, then for each a pickle, then dimensions, sizes, strides and offset as raw numbers."""
    data = piece.data
    judge = Judge()
    run = run_of(piece, judge)
    machine = run.machine
    try:
        count = machine.load()
        if type(count) is not int or not 0 <= count <= data.size // 12:
            raise machine.corrupt(f"the number of {name} is out of range")
        for _ in range(count):
            entry = machine.load()
            at = machine.position
            if name == "tensors":
                dims = int.from_bytes(_exactly(data, at, 4), "little")
                if dims > 64:
                    raise machine.corrupt("a tensor has no valid number of dimensions", found=dims)
                machine.position = at + 8 + 16 * dims + 8
                continue
            cls = entry[2] if isinstance(entry, tuple) and len(entry) == 3 else None
            itemsize = judge.itemsize(cls)
            if itemsize is None:
                raise machine.corrupt("an entry of the storages is malformed")
            numel = int.from_bytes(_exactly(data, at, 8), "little", signed=True)
            if numel < 0 or numel * itemsize > data.size - at - 8:
                raise machine.corrupt("a storage is larger than the archive", found=numel)
            machine.position = at + 8 + numel * itemsize
        if name == "storages":
            machine.load()
        run.end = machine.position
        run.done = 1
        if run.end < data.size:
            run.go()
    except ArtifactkitError as error:
        run.error, run.done = error, 0
    judge.finish()
    report(piece, run)


def _exactly(data: Bytes, at: int, n: int) -> bytes:
    if at + n > data.size:
        raise Truncated("the list ends too early", offset=at)
    return data.read(at, n)
