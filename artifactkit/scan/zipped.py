"""Zip archives: every run of bytes that some reader would take for a member is looked into, whatever it is called.

Torch's archives keep tensor bytes as members of their own. Those that a pickle of the archive refers to are data and
are not read, which is why a large checkpoint costs what a small one does; all others are looked into.
"""

from __future__ import annotations

import re
import stat
import zlib
from typing import TYPE_CHECKING

from ..containers import npy
from ..containers.pickle_family import kind_of_zip
from ..containers.tar import Tar, is_tar
from ..containers.zip import Zip
from ..containers.zip_records import Anomaly, Member
from ..errors import ArtifactkitError, LimitExceeded
from ..files import Bytes, Memory, part
from .model import Rule
from .paths import unsafe_path
from .pickle_rules import MALFORMED
from .piece import Piece
from .rules import LIMIT
from .zip_members import (
    Run,
    gaps,
    hidden_runs,
    local_run,
    other_ends,
    runs_of,
    second_names,
    unpacked,
    zip64_elsewhere,
)

if TYPE_CHECKING:
    from .sparse import Sparse

_AGAIN = "get the file again from its producer, or repack it with a plain zip tool after looking into it"
DIFFERS = Rule(
    "zip-views-differ", "suspicious", "the archive's directory and its local headers say different things",
    "readers that trust one of them see other names, sizes or data than readers that trust the other", _AGAIN,
)  # fmt: skip
TWO = Rule(
    "zip-readers-disagree", "malicious", "two readers would take different members from this archive",
    "two members of one name, or two directories: the scanner sees one, the loader the other",
    "do not load this file; get it from a producer you trust",
)  # fmt: skip
FLAGS = Rule(
    "zip-flags", "suspicious", "a member is marked as encrypted, or says of itself what cannot be",
    "some readers give up on such a member, and loaders such as torch's read it all the same", _AGAIN,
)  # fmt: skip
SUM = Rule(
    "zip-wrong-sum", "suspicious", "a member's CRC-32 is wrong",
    "readers that check it give up, others read on: a way to make a scanner miss the member", _AGAIN,
)  # fmt: skip
EXTRA = Rule(
    "zip-extra-bytes", "suspicious", "there are bytes in the file that belong to no member",
    "a file can be two files at once; another program may read the other one", _AGAIN,
)  # fmt: skip
PATH = Rule(
    "archive-unsafe-path", "malicious", "a member would be unpacked outside the folder",
    "unpacking it overwrites files elsewhere: start-up scripts, keys, code", "do not unpack this archive",
)  # fmt: skip
LINK = Rule(
    "archive-link", "suspicious", "a member is a link",
    "what is read through it after unpacking is not in the archive", "unpack without links, or repack without them",
)  # fmt: skip
NATIVE = Rule(
    "archive-native-code", "suspicious", "a checkpoint holds native code",
    "a library that lies in the archive can be loaded by what loads the model",
    "load it only where the producer is trusted",
)  # fmt: skip
RULES = (DIFFERS, TWO, FLAGS, SUM, EXTRA, PATH, LINK, NATIVE)

BY_KIND: dict[str, Rule] = {
    "zip64-differs": TWO, "duplicate": TWO, "second-directory-end": TWO, "encrypted-flag": FLAGS,
    "impossible-ratio": FLAGS, "hidden-member": DIFFERS, "prefix-bytes": EXTRA, "trailing-bytes": EXTRA,
    "directory-gap": EXTRA, "directory-slack": EXTRA,
}  # fmt: skip
QUIET = frozenset({"case-clash", "second-name", "gap"})  # harmless, or said below with more knowledge
STORAGE = re.compile(r"(?:^|/)(?:\.?data|constants|tensors)/(?:[^/]*/)?[^/]+$")
# Archives that are no family of ours, by members that only they have.
LAYOUTS = {"keras": ("config.json", "metadata.json"), "skops": ("schema.json",)}
MODELS = frozenset({"torch-zip", "torchscript", "torch-package", "pt2"})
CHECKED = 64 << 20  # bytes of a stored member that is read through for its CRC-32
NATIVE_SUFFIXES = (".so", ".dll", ".dylib", ".pyd", ".exe")
NATIVE_MAGIC = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")


def scan(piece: Piece, kind: str) -> None:
    """Look into every member of the archive."""
    data = piece.data
    begins = piece.first.startswith(b"PK\x03\x04")
    try:
        archive = Zip(data)
    except ArtifactkitError as error:
        if not begins and not isinstance(error, LimitExceeded) and not _near_end(piece):
            _forget(piece)  # the four bytes of the mark, by chance
            return
        piece.unreadable(error, LIMIT) if isinstance(error, LimitExceeded) else piece.unreadable(error)
        Members(piece, "zip").hidden(0, data.size)
        return
    if not begins and is_tar(piece.first) and _is_member(piece, archive):
        _forget(piece)  # the tar's own rules look into it
        return
    if _is_value(piece, archive):
        _forget(piece)  # the pickle's own rules have looked into it
        return
    found = _kind(archive)
    if piece.depth == 0 and found != "zip" and found not in piece.report.formats:
        piece.report.formats[piece.report.formats.index("zip")] = found
    piece.also.append(found)
    members = Members(piece, found)
    _judge(piece, archive)
    members.archive(archive)
    for start, end in gaps(archive):
        members.hidden(start, end)
    if archive.directory_start + archive.directory_size < data.size:
        members.hidden(archive.directory_start + archive.directory_size, data.size)
    _behind(piece)
    spans = [(run.offset, run.offset + run.packed) for member in archive.members for run in runs_of(archive, member)]
    for end in other_ends(data, piece.last, spans):
        try:
            other = Zip(part(data, 0, end))
        except ArtifactkitError:
            continue
        if other.directory_start != archive.directory_start:
            piece.find(TWO, "the file has two directories", offset=other.directory_start)
            members.archive(other)


def _behind(piece: Piece) -> None:
    """Look into what follows the directory's end: its comment, or bytes of nobody's."""
    at = piece.last.rfind(b"PK\x05\x06")
    if 0 <= at < len(piece.last) - 22:
        piece.look(piece.inner(Memory(piece.last[at + 22 :]), "(behind the directory)", "zip"))


def _near_end(piece: Piece) -> bool:
    """Whether the mark of a directory's end stands where it is one: what follows is its comment, to the byte."""
    at = piece.last.rfind(b"PK\x05\x06")
    comment = int.from_bytes(piece.last[at + 20 : at + 22], "little")
    return 0 <= at <= len(piece.last) - 22 and at + 22 + comment == len(piece.last)


def _is_member(piece: Piece, archive: Zip) -> bool:
    """Whether the archive is just the content of one member of the tar archive that the piece is."""
    try:
        members = Tar(piece.data).members
    except ArtifactkitError:
        return False
    begin, end = archive.prefix, archive.directory_start + archive.directory_size
    return any(m.offset == begin and m.kind == "file" and end <= m.offset + m.size for m in members)


def _is_value(piece: Piece, archive: Zip) -> bool:
    """Whether the archive is just the bytes that a pickle holds as a value (a checkpoint saved within another)."""
    start, end = archive.prefix, archive.directory_start + archive.directory_size
    return any(at < start <= at + 9 and end < start + size for at, size in piece.held)


def _forget(piece: Piece) -> None:
    if piece.depth == 0 and "zip" in piece.report.formats:
        piece.report.formats.remove("zip")


def _kind(archive: Zip) -> str:
    try:
        found = kind_of_zip(archive)
    except ArtifactkitError:
        found = None
    if found in (None, "npz"):
        for name, members in LAYOUTS.items():
            if all(member in archive for member in members):
                return name
    return found or "zip"


def _judge(piece: Piece, archive: Zip) -> None:
    """Say where the archive is not plain."""
    for odd in archive.anomalies():
        if odd.kind in QUIET:
            continue
        piece.find(_rule(odd), f"{odd.kind}: {odd.detail}", offset=odd.offset, member=odd.member)
    if zip64_elsewhere(archive, piece.last):
        piece.find(TWO, "there are two zip64 directory ends")
    for start, end in gaps(archive):
        if start == 0 and piece.first[4:8] == b"TFL3":
            continue  # the model: TFLite keeps labels and metadata as an archive behind it
        if start >= archive.prefix and _not_blank(archive.file, start, end):
            piece.find(EXTRA, f"{end - start} bytes that belong to no member", offset=start)
    for member in archive.members:
        if other := second_names(member):
            piece.find(DIFFERS, f"an extra field calls the member {other[:100]}", member=member.name)
        if unsafe_path(member.name):
            piece.find(PATH, f"the member {member.name[:200]} would be unpacked outside the folder", member=member.name)
        if stat.S_ISLNK(member.attributes >> 16):
            _link(piece, archive, member)


def _rule(odd: Anomaly) -> Rule:
    if odd.kind in ("prefix-bytes", "directory-gap") and odd.fatal:
        return TWO
    return BY_KIND.get(odd.kind, DIFFERS)


def _not_blank(data: Bytes, start: int, end: int) -> bool:
    return any(data.read(at, min(1 << 20, end - at)).strip(b"\0") for at in range(start, end, 1 << 20))


def _link(piece: Piece, archive: Zip, member: Member) -> None:
    target = ""
    for run in runs_of(archive, member)[:1]:
        try:
            target = unpacked(archive.file, run, 4096).read(0, min(run.size, 4096)).decode("utf-8", "replace")
        except ArtifactkitError:
            target = ""
    folder = member.name.rpartition("/")[0]
    outside = unsafe_path(target) or unsafe_path(f"{folder}/{target}" if folder else target)
    piece.find(LINK, f"the member is a link to {target[:200]}", member=member.name,
               severity="malicious" if outside else None)  # fmt: skip


class Members:
    """Looks into the members of one file, each run of bytes once."""

    def __init__(self, piece: Piece, kind: str) -> None:
        self.piece, self.kind = piece, kind
        self.seen: set[tuple[int, int, int]] = set()
        self.sparse: list[tuple[str, list[Sparse]]] = []
        self.stored: dict[str, int] = {}  # member name -> bytes that a pickle says it has

    def archive(self, archive: Zip) -> None:
        """Pickles first: they say which of the other members are tensor bytes."""
        later: list[Run] = []
        for member in archive.members:
            if member.is_folder and member.size == 0:
                continue
            for run in runs_of(archive, member):
                if self.kind in MODELS and STORAGE.search(run.name) and not run.hidden:
                    later.append(run)
                else:
                    self.look(run)
        for run in later:
            wanted = self.stored.get(run.name)
            if wanted is None:
                self.look(run)
            elif run.size < wanted:
                what = f"a storage has {run.size} bytes, its tensor says {wanted}"
                self.piece.find(MALFORMED, what, member=run.name)

        for name, found in self.sparse:
            self._indices(archive, name, found)
        self.sparse.clear()

    def _indices(self, archive: Zip, name: str, found: list[Sparse]) -> None:
        """Check the indices of sparse tensors, which torch may not."""
        from .sparse import wrong

        def read(key: str) -> Bytes | None:
            for place in places(name, key):
                if place in archive:
                    runs = runs_of(archive, archive.member(place))
                    return unpacked(archive.file, runs[0], 64 << 20) if runs else None
            return None

        for tensor in found:
            try:
                what = wrong(tensor, read)
            except ArtifactkitError:
                continue
            if what:
                what = f"the indices of a sparse tensor are wrong: {what}"
                self.piece.find(MALFORMED, what, member=name, offset=tensor.offset)

    def hidden(self, start: int, end: int) -> None:
        """Members that only local headers lead to."""
        for run in hidden_runs(self.piece.data, start, end):
            self.piece.budget.hidden -= 1
            if self.piece.budget.hidden < 0:
                self.piece.find(LIMIT, "too many local headers that no directory leads to")
                return
            self.look(run)

    def look(self, run: Run) -> None:
        if run.key in self.seen:
            return
        self.seen.add(run.key)
        piece = self.piece
        try:
            data = self._data(run)
        except ArtifactkitError as error:
            if not run.hidden or isinstance(error, LimitExceeded):
                inner = piece.inner(piece.data, run.name, self.kind)
                inner.unreadable(error, LIMIT) if isinstance(error, LimitExceeded) else inner.unreadable(error)
            return
        if data is None:
            return
        # The pickles of scripted modules name classes of the archive's own, which no Python imports.
        scripted = self.kind == "torch-package" and "/.data/ts_code/" in run.name
        inner = piece.inner(data, run.name, "torchscript" if scripted else self.kind)
        self._native(inner)
        piece.look(inner)
        if inner.stored:
            self._refer(run.name, inner.stored)
        if inner.sparse:
            self.sparse.append((run.name, inner.sparse))

    def _data(self, run: Run) -> Bytes | None:
        """What is to be looked into; None for a plain array, whose head says all."""
        piece = self.piece
        if run.method != 0:
            if run.size > 1 << 20 and self._plain_array(run):
                return None
            data = unpacked(piece.data, run, min(piece.budget.unpacked, max(run.packed * 1100, 1 << 20)))
            piece.spend(data.size)
        else:
            data = unpacked(piece.data, run, 0)
        if run.crc is not None and data.size == run.size and data.size <= CHECKED and not self._array(data):
            crc = 0
            for at in range(0, data.size, 1 << 20):
                crc = zlib.crc32(data.read(at, min(1 << 20, data.size - at)), crc)
            if crc != run.crc:
                piece.find(SUM, f"CRC-32 {crc:08x}, declared {run.crc:08x}", member=run.name)
        return data

    def _array(self, data: Bytes) -> bool:
        return data.size > 1 << 20 and data.read(0, 6) == npy.MAGIC

    def _plain_array(self, run: Run) -> bool:
        """Whether a packed member is a plain .npy array of just the size that it declares."""
        from ..containers.compressed import Stream

        if run.method != 8:
            return False
        stream = Stream(part(self.piece.data, run.offset, run.packed), "deflate", run.name)
        try:
            head = stream.next(4096)
            header = npy.read_header(Memory(head))
        except ArtifactkitError:
            return False
        plain = npy.parse_descr(header.descr)
        return plain is not None and plain.kind != "O" and (
            header.data_offset + header.count * plain.itemsize == run.size
        )  # fmt: skip

    def _native(self, inner: Piece) -> None:
        if self.kind not in MODELS:
            return
        if inner.name.lower().endswith(NATIVE_SUFFIXES) or inner.first.startswith(NATIVE_MAGIC):
            self.piece.find(NATIVE, f"the checkpoint holds native code: {inner.name[:200]}", member=inner.name)
        elif inner.name.endswith((".py", ".pyc")) and self.kind in ("torch-zip", "torch-package"):
            inner.runs("Python code in the checkpoint", "torch.package, or what imports it after unpacking",
                       "load only the tensors")  # fmt: skip

    def _refer(self, name: str, stored: dict[str, int]) -> None:
        """Note which members a pickle's storages are."""
        for key, nbytes in stored.items():
            for place in places(name, key):
                self.stored[place] = max(nbytes, self.stored.get(place, 0))


def places(name: str, key: str) -> tuple[str, ...]:
    """Where torch looks for the storage ``key`` of the pickle ``name``: in a folder beside it."""
    folder, _, record = name.rpartition("/")
    root = f"{folder}/" if folder else ""
    base = record.removesuffix(".pkl")
    return (f"{root}{base}/{key}", f"{root}data/{key}", f"{name.partition('/')[0]}/.data/{key}.storage",
            f"{root}.data/{key}.storage", f"{root}tensors/{key}")  # fmt: skip


__all__ = ["RULES", "Members", "local_run", "scan"]
