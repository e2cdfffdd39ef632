"""Reads the object that a torch file holds, whatever its container: zip archive, legacy stream, legacy tar.

Storages become places in the file; nothing but pickles and directories is read. A pickle may hold a whole torch file in
a string of bytes (``torch.storage._load_from_bytes``), so a ``Loader`` reads those too, to a bounded depth and size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from .containers import torch_legacy
from .containers.pickle_family import root_of
from .containers.tar import Tar
from .containers.zip import Zip
from .containers.zip_records import DEFLATED
from .errors import Corrupt, LimitExceeded, Truncated
from .files import Bytes, Memory, label, part
from .pickles import Machine, Payload, Table
from .source import Source, span
from .strided import view
from .tensor_names import Storage, StorageId, StorageType, TensorValue, storage_id, tensor_table

MAX_NESTING = 4
NESTED_FLOOR = 16 << 20  # bytes of nested files, all together, that any file may hold
NESTED_RATIO = 8  # and how often a file's size they may be (a memoised string can be loaded again and again)
RECORD = 4096  # bytes of a small record: version, byte order
IN_MEMORY = 64 << 20


class Loader:
    """Reads one file's pickles with one table, and keeps the machines that did, and notes."""

    def __init__(self, data: Bytes, joblib: bool = False, beside: Callable[[str], object] | None = None) -> None:
        self.data = data
        self.machines: list[Machine] = []
        self.notes: list[str] = []
        self._depth = 0
        self._nested_left = max(NESTED_FLOOR, NESTED_RATIO * data.size)
        self.table: Table = tensor_table(load_bytes=self._nested, joblib=joblib, beside=beside)

    def note(self, text: str) -> None:
        """Add a note once."""
        if text not in self.notes:
            self.notes.append(text)

    def machine(
        self,
        data: Bytes,
        *,
        persistent: Callable[[object], object] | None = None,
        member: str | None = None,
        start: int = 0,
    ) -> Machine:
        """A machine over ``data``, kept in ``machines``."""
        made = Machine(data, table=self.table, persistent=persistent, member=member, start=start)
        self.machines.append(made)
        return made

    def _nested(self, found: bytes | Payload) -> object:
        data: Bytes
        if isinstance(found, Payload):
            data = part(found.data, found.offset, found.nbytes, "(nested torch file)")
        else:
            data = Memory(bytes(found), label(self.data) or "", "(nested torch file)")
        self._nested_left -= data.size
        if self._depth >= MAX_NESTING or self._nested_left < 0:
            raise LimitExceeded(
                "torch files are nested out of proportion", expected=f"at most {MAX_NESTING} deep, "
                f"{max(NESTED_FLOOR, NESTED_RATIO * self.data.size)} bytes in all",
            )  # fmt: skip
        self._depth += 1
        try:
            return self.torch_file(data)
        finally:
            self._depth -= 1

    def torch_file(self, data: Bytes) -> object:
        """The object in a zip archive or a legacy stream, told by its first bytes."""
        head = data.read(0, min(64, data.size))
        if head.startswith(b"PK\x03\x04"):
            return TorchArchive(Zip(data), self).value()
        if torch_legacy.is_legacy(head):
            return self.legacy(data)
        raise Corrupt("a nested torch file is in no container of torch's", file=label(data), found=head[:8].hex(" "))

    # -- the legacy stream

    def legacy(self, data: Bytes) -> object:
        """The object of a legacy stream, its storages placed in the file."""
        storages: dict[str, Storage] = {}
        views: list[tuple[Storage, str, int]] = []

        def persistent(pid: object) -> object:
            if isinstance(pid, tuple) and len(pid) == 4 and pid[0] in ("module", b"module"):
                return pid[1]  # a class, with its source for comparison; the class stays a name
            found = storage_id(pid)
            root = storages.get(found.key)
            if root is None:
                root = storages[found.key] = found.storage()
            if found.view is not None:
                _, offset, numel = found.view
                made = replace(root, numel=numel)
                views.append((made, found.key, offset))
                return made
            return root

        machine = self.machine(data, persistent=persistent)
        for what, expected in (("magic number", torch_legacy.MAGIC_NUMBER), ("version", torch_legacy.PROTOCOL_VERSION)):
            at, found = machine.position, machine.load()
            if found != expected:
                raise Corrupt(
                    f"the legacy torch file has no valid {what}",
                    file=label(data),
                    offset=at,
                    expected=expected,
                    found=found if isinstance(found, int) else type(found).__name__,
                )
        info = machine.load()
        if isinstance(info, dict) and info.get("little_endian") is False:
            self.note("saved on a big-endian machine; a legacy file's storages are little-endian all the same")
        value = machine.load()
        at, keys = machine.position, machine.load()
        if not isinstance(keys, list) or not all(isinstance(key, str | int) for key in keys):
            raise Corrupt("the list of storages is malformed", file=label(data), offset=at, found=type(keys).__name__)
        sizes = {key: storage.itemsize for key, storage in storages.items()}
        places, end = torch_legacy.storage_layout(data, machine.position, [str(key) for key in keys], sizes)
        for key, place in places.items():
            if place.nbytes != storages[key].nbytes:
                raise Corrupt(
                    "a storage is not as long as its tensor says",
                    file=label(data),
                    member=f"storage {key}",
                    offset=place.offset - 8,
                    expected=f"{storages[key].nbytes} bytes",
                    found=f"{place.nbytes} bytes",
                )
            storages[key].source = span(data, place.offset, place.nbytes, (label(data) or "", place.offset))
        for made, key, offset in views:
            made.source = _part_of(storages[key], offset * made.itemsize, made.nbytes, data)
        if end < data.size:
            self.note(f"{data.size - end} bytes follow the last storage and were left alone")
        return value

    # -- the legacy tar

    def tar(self, archive: Tar) -> object:
        """The object of torch 0.1's tar: storages and tensors are listed in members of their own."""
        storages = self._tar_storages(archive.member_bytes("storages"))
        tensors = self._tar_tensors(archive.member_bytes("tensors"), storages)

        def persistent(pid: object) -> object:
            if isinstance(pid, tuple) and pid:
                return pid[0]
            key = str(pid)
            found = tensors.get(key) or storages.get(key)
            if found is None:
                raise Corrupt("the pickle refers to a tensor that is not in the archive", found=key[:40])
            return found

        return self.machine(archive.member_bytes("pickle"), persistent=persistent, member="pickle").load()

    def _count(self, machine: Machine, what: str, least: int) -> int:
        at, count = machine.position, machine.load()
        if type(count) is not int or count < 0 or count * least > machine.size:
            raise Corrupt(f"the number of {what} is out of range", file=machine.file, member=machine.member, offset=at,
                          found=count if isinstance(count, int) else type(count).__name__)  # fmt: skip
        return count

    def _tar_storages(self, data: Bytes) -> dict[str, Storage]:
        machine = self.machine(data, member="storages")
        out: dict[str, Storage] = {}
        for _ in range(self._count(machine, "storages", 12)):
            at, entry = machine.position, machine.load()
            if not (isinstance(entry, tuple) and len(entry) == 3 and isinstance(entry[2], StorageType)):
                raise Corrupt("an entry of the storages is malformed", file=label(data), member="storages", offset=at)
            key, location, kind = entry
            storage = StorageId(kind, str(key), str(location), 0).storage()
            start = machine.position
            places, end = torch_legacy.storage_layout(data, start, [storage.key], {storage.key: storage.itemsize})
            place = places[storage.key]
            storage.source = span(data, place.offset, place.nbytes, (label(data) or "", place.offset))
            storage.numel = place.nbytes // storage.itemsize
            if storage.key in out:
                raise Corrupt("a storage key stands twice", file=label(data), member="storages", offset=at)
            out[storage.key] = storage
            machine.position = end
        at, views = machine.position, machine.load()
        if not isinstance(views, list):
            raise Corrupt("the list of storage views is malformed", file=label(data), member="storages", offset=at)
        for entry in views:
            if not (isinstance(entry, tuple) and len(entry) == 4 and all(type(n) is int and n >= 0 for n in entry[2:])):
                raise Corrupt("a storage view is malformed", file=label(data), member="storages", offset=at)
            target, root_key, offset, numel = str(entry[0]), str(entry[1]), entry[2], entry[3]
            root = out.get(root_key)
            if root is None or target in out:
                raise Corrupt(
                    "a storage view has no root, or stands twice", file=label(data), member="storages", offset=at
                )
            made = replace(root, key=target, numel=numel)
            made.source = _part_of(root, offset * root.itemsize, made.nbytes, data)
            out[target] = made
        return out

    def _tar_tensors(self, data: Bytes, storages: dict[str, Storage]) -> dict[str, TensorValue]:
        machine = self.machine(data, member="tensors")
        out: dict[str, TensorValue] = {}
        for _ in range(self._count(machine, "tensors", 20)):
            at, entry = machine.position, machine.load()
            storage = storages.get(str(entry[1])) if isinstance(entry, tuple) and len(entry) == 3 else None
            if storage is None or not isinstance(entry, tuple):
                raise Corrupt("a tensor has no storage in the archive", file=label(data), member="tensors", offset=at)
            place = machine.position
            # int32, written as 8 bytes by the first versions: the upper half is passed over.
            dims = int.from_bytes(_exactly(data, place, 4), "little", signed=True)
            if not 0 <= dims <= 64:
                raise Corrupt("a tensor has no valid number of dimensions", file=label(data), member="tensors",
                              offset=place, found=dims)  # fmt: skip
            raw = _exactly(data, place + 8, 16 * dims + 8)
            numbers = [int.from_bytes(raw[i : i + 8], "little", signed=True) for i in range(0, len(raw), 8)]
            machine.position = place + 8 + len(raw)
            if storage.dtype is None or str(entry[0]) in out:
                raise Corrupt("a tensor stands twice or has no type", file=label(data), member="tensors", offset=at)
            out[str(entry[0])] = TensorValue(
                storage.dtype, tuple(numbers[:dims]), tuple(numbers[dims : 2 * dims]), numbers[-1], storage
            )
        return out


def _exactly(data: Bytes, offset: int, n: int) -> bytes:
    if offset + n > data.size:
        raise Truncated("the list of tensors ends too early", file=label(data), member="tensors", offset=offset)
    return data.read(offset, n)


def _part_of(root: Storage, offset: int, nbytes: int, data: Bytes) -> Source | None:
    """``nbytes`` bytes at ``offset`` of a storage, for a storage that is a view of another."""
    if root.source is None:
        return None
    if offset + nbytes > root.source.nbytes:
        raise Corrupt(
            "a storage view reaches outside its storage", file=label(data), member=f"storage {root.key}",
            expected=f"at most {root.source.nbytes} bytes", found=f"{nbytes} bytes at {offset}",
        )  # fmt: skip
    return view(root.source, 1, offset, (nbytes,), (1,))


class TorchArchive:
    """A zip archive as torch writes it: records under one root folder, storages as members of their own."""

    def __init__(self, archive: Zip, loader: Loader | None = None) -> None:
        archive.strict()
        self.zip = archive
        self.loader = loader or Loader(archive.file)
        self.root = root_of(archive)
        self.byteorder = self._byteorder()
        self._storages: dict[tuple[str, str], Storage] = {}
        self.deflated = 0  # storages that are not plain bytes in the file

    def name(self, record: str) -> str:
        """The member that holds ``record``."""
        return f"{self.root}/{record}"

    def __contains__(self, record: str) -> bool:
        return self.name(record) in self.zip

    def text(self, record: str) -> str | None:
        """A small record as text, stripped; None when the archive has none."""
        if record not in self:
            return None
        return self.zip.read_small(self.name(record), RECORD).decode("utf-8", "replace").strip()

    def _byteorder(self) -> Literal["little", "big"]:
        found = self.text("byteorder")
        if found not in (None, "little", "big"):
            raise Corrupt("the archive's byte order is unknown", file=self.zip.path, member=self.name("byteorder"),
                          expected="little or big", found=found)  # fmt: skip
        return "big" if found == "big" else "little"

    def pickle(
        self,
        record: str,
        folder: str = "data/",
        suffix: str = "",
        other: Callable[[tuple[object, ...]], object] | None = None,
    ) -> object:
        """The value of the pickle ``record``; storages are the members ``folder`` + key + ``suffix``.

        ``other`` answers persistent ids that are no storages.
        """
        name = self.name(record)
        self.zip.check_crc(name)
        data = self.zip.member_bytes(name)
        if self.zip.member(name).method == DEFLATED and data.size <= IN_MEMORY:
            data = Memory(data.read(0, data.size), self.zip.path or "", name)

        def persistent(pid: object) -> object:
            if other is not None and isinstance(pid, tuple) and pid and pid[0] not in ("storage", b"storage"):
                return other(pid)
            return self.storage(storage_id(pid), folder, suffix)

        machine = self.loader.machine(data, persistent=persistent, member=name)
        value = machine.load()
        if machine.position < data.size:
            self.loader.note(f"{data.size - machine.position} bytes follow the pickle in {name}")
        return value

    def storage(self, found: StorageId, folder: str = "data/", suffix: str = "") -> Storage:
        """The storage of a persistent id; one without a member has no source."""
        key = (found.key, found.type.name)
        known = self._storages.get(key)
        if known is not None:
            return known
        storage = found.storage()
        storage.byteorder = self.byteorder
        name = self.name(f"{folder}{found.key}{suffix}")
        if name in self.zip:
            data = self.zip.member_bytes(name)
            # The count is rounded down to whole elements when torch saves a storage of other bytes.
            typed = found.type.type is None or found.type.type.dtype is not None
            if typed and not storage.nbytes <= data.size < storage.nbytes + storage.itemsize:
                raise Corrupt("a storage is not as long as its tensor says", file=self.zip.path, member=name,
                              expected=f"{storage.nbytes} bytes", found=f"{data.size} bytes")  # fmt: skip
            member = self.zip.member(name)
            self.deflated += member.method == DEFLATED
            storage.source = span(data, 0, data.size, (self.zip.path or "", member.header_offset))
        self._storages[key] = storage
        return storage

    def value(self) -> object:
        """The object of an archive that ``torch.save`` wrote."""
        if "data.pkl" not in self:
            raise Corrupt("the archive lacks its pickle", file=self.zip.path, member=self.name("data.pkl"))
        other = [m.name for m in self.zip.members if m.name.endswith("/data.pkl") and m.name != self.name("data.pkl")
                 and m.name.count("/") == 1]  # fmt: skip
        if other:
            raise Corrupt("the archive holds two checkpoints", file=self.zip.path, member=other[0],
                          hint="readers would disagree about which is meant")  # fmt: skip
        return self.pickle("data.pkl")

    @property
    def unpacked_size(self) -> int:
        """Bytes of all members, unpacked: what tensors may be measured against."""
        return sum(member.size for member in self.zip.members)

    def say(self) -> None:
        """Add notes on what is not as usual about this archive."""
        note = self.loader.note
        if self.byteorder == "big":
            note("big-endian data: byte-swapped as it is read")
        if self.deflated:
            note(f"{self.deflated} storages are deflated: unpacked as they are read")
        for odd in self.zip.oddities:
            note(f"zip archive: {odd.kind}: {odd.detail}")
