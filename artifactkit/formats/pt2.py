"""pt2: what ``torch.export.save`` writes, an exported program with its weights. The weights are read, the graph is not.

Sources: ``torch/export/pt2_archive/_package.py`` and ``torch/_export/serde/schema.py`` of torch 2.13. Weights are plain
records, each described in a JSON file by type, sizes, strides and offset, or a torch file where a tensor is of a class
of its own. Archives of torch 2.6 and before hold one torch file with all of them.
"""

from __future__ import annotations

from ..artifact import Weights
from ..checkpoint import collect
from ..containers.strict_json import duplicate, loads
from ..containers.zip import Zip
from ..dtypes import BY_NAME
from ..errors import ArtifactkitError, Corrupt, Unreadable
from ..source import span
from ..tensor_names import Storage, TensorValue, Unsupported
from ..torch_files import Loader, TorchArchive
from ..types import Format, Head, ReadOptions

# schema.py, class ScalarType
SCALAR_TYPES = {
    1: "u8", 2: "i8", 3: "i16", 4: "i32", 5: "i64", 6: "f16", 7: "f32", 8: "f64", 9: "c32", 10: "c64", 11: "c128",
    12: "bool", 13: "bf16", 28: "u16", 29: "f8_e4m3", 30: "f8_e5m2", 31: "f8_e4m3fnuz", 32: "f8_e5m2fnuz",
    33: "f8_e8m0", 34: "u32", 35: "u64",
}  # fmt: skip
STRIDED = 7  # class Layout
CONFIG = 64 << 20  # bytes of a JSON file
# Before torch 2.7: members at the root of the archive, each a torch file.
OLD_PROGRAM, OLD_WEIGHTS, OLD_CONSTANTS = (
    "serialized_exported_program.json",
    "serialized_state_dict",
    "serialized_constants",
)


def sniff(head: Head) -> bool:
    return head.kind == "pt2"


def read(head: Head, options: ReadOptions) -> Weights:
    loader = Loader(head.file)
    zipped = head.open_zip()
    zipped.strict()
    if OLD_PROGRAM in zipped:
        value = _old(zipped, loader, options)
        size = sum(member.size for member in zipped.members)
    else:
        archive = TorchArchive(zipped, loader)
        value, size = _Program(archive).read(options), archive.unpacked_size
        archive.say()
    weights = collect(
        value, format="pt2", file=head.path, options=options, machines=loader.machines, file_size=size
    )  # fmt: skip
    loader.note("an exported program: its weights are taken, its graph is not")
    weights.notes[:0] = loader.notes
    return weights


def _old(zipped: Zip, loader: Loader, options: ReadOptions) -> object:
    found: dict[str, object] = {}
    for stem in (OLD_WEIGHTS, OLD_CONSTANTS) if options.everything else (OLD_WEIGHTS,):
        names = [n for n in (f"{stem}.pt", f"{stem}.json") if n in zipped]
        for name in names[:1]:
            try:
                value = loader.torch_file(zipped.member_bytes(name))
            except ArtifactkitError as error:
                raise error.located(member=name) from None
            if isinstance(value, dict):
                found |= {key: item for key, item in value.items() if key not in found}
    return found


class _Program:
    """The weights, and with ``--all`` the constants, of every model in the archive."""

    def __init__(self, archive: TorchArchive) -> None:
        self.archive = archive
        self._storages: dict[str, Storage] = {}

    def read(self, options: ReadOptions) -> object:
        kinds = ("weights", "constants") if options.everything else ("weights",)
        models: dict[str, dict[str, object]] = {}
        for kind in kinds:
            for model, value in self._models(kind):
                held = models.setdefault(model, {})
                for name, item in value.items():
                    held[name if name not in held else f"{kind}.{name}"] = item
        self._refuse_without_weights(models)
        if len(models) == 1:
            return next(iter(models.values()))
        return models

    def _refuse_without_weights(self, models: dict[str, dict[str, object]]) -> None:
        compiled = sorted({
            m.name.split("/")[3] for m in self.archive.zip.members
            if m.name.startswith(self.archive.name("data/aotinductor/")) and m.name.count("/") >= 4
        })  # fmt: skip
        if compiled:
            self.archive.loader.note(f"compiled code (AOTInductor) of {', '.join(compiled[:8])} was left alone")
        if not models:
            raise Unreadable(
                "the pt2 archive holds no plain weights", file=self.archive.zip.path,
                found="compiled code (AOTInductor)" if compiled else "no data/weights",
                hint="go back to the checkpoint that it was made from",
            )  # fmt: skip

    def _models(self, kind: str) -> list[tuple[str, dict[str, object]]]:
        """(model, names and tensors) of each; ``kind`` is the folder, ``weights`` or ``constants``."""
        folder, end = f"data/{kind}/", f"_{kind}_config.json"
        out: list[tuple[str, dict[str, object]]] = []
        for member in self.archive.zip.members:
            record = member.name.removeprefix(self.archive.root + "/")
            if not record.startswith(folder):
                continue
            name = record.removeprefix(folder)
            if name.endswith(end):
                out.append((name.removesuffix(end), self._configured(folder, record)))
            elif name.endswith(".pt") and "/" not in name:  # one torch file for all: torch 2.7 and 2.8
                value = self.archive.loader.torch_file(self.archive.zip.member_bytes(member.name))
                out.append(
                    (name.removesuffix(".pt"), {str(k): v for k, v in value.items()} if isinstance(value, dict) else {})
                )
        return out

    def _configured(self, folder: str, record: str) -> dict[str, object]:
        name = self.archive.name(record)
        document = loads(self.archive.zip.read_small(name, CONFIG), what=name, file=self.archive.zip.path)
        entries = _get(document, "config")
        if not isinstance(entries, dict) or duplicate(entries) is not None:
            raise self._corrupt(record, "the list of tensors is malformed")
        return {key: self._tensor(folder, record, key, entry) for key, entry in entries.items()}

    def _corrupt(self, record: str, what: str, tensor: str | None = None, found: object = None) -> Corrupt:
        return Corrupt(what, file=self.archive.zip.path, member=self.archive.name(record), tensor=tensor, found=found)

    def _tensor(self, folder: str, record: str, key: str, entry: object) -> object:
        path, meta = _get(entry, "path_name"), _get(entry, "tensor_meta")
        if not isinstance(path, str):
            raise self._corrupt(record, "a tensor has no record", key)
        if _get(entry, "use_pickle") is True:
            if not path.startswith(("weight_", "tensor_")):
                return Unsupported(f"the object {path[:40]}, which is no tensor")
            return self.archive.loader.torch_file(self.archive.zip.member_bytes(self.archive.name(folder + path)))
        code = _get(meta, "dtype")
        dtype = BY_NAME.get(SCALAR_TYPES.get(code, "")) if isinstance(code, int) else None
        if dtype is None:
            raise self._corrupt(record, "a tensor's dtype is unknown", key, code)
        if _get(meta, "layout") != STRIDED:
            return Unsupported("a tensor that is not strided")
        shape, strides = (self._numbers(record, key, _get(meta, what)) for what in ("sizes", "strides"))
        (offset,) = self._numbers(record, key, [_get(meta, "storage_offset")])
        return TensorValue(dtype, shape, strides, offset, self._storage(folder + path, dtype.name))

    def _numbers(self, record: str, key: str, items: object) -> tuple[int, ...]:
        values = [_get(item, "as_int") for item in items] if isinstance(items, list) else [None]
        if not all(type(value) is int for value in values):
            raise self._corrupt(record, "a tensor's size, stride or offset is no integer", key)
        return tuple(value for value in values if isinstance(value, int))

    def _storage(self, record: str, dtype: str) -> Storage:
        if record not in self._storages:
            name = self.archive.name(record)
            data = self.archive.zip.member_bytes(name)
            place = (self.archive.zip.path or "", self.archive.zip.member(name).header_offset)
            kind = BY_NAME[dtype]
            self._storages[record] = Storage(
                record, kind, span(data, 0, data.size, place), data.size // kind.itemsize,
                byteorder=self.archive.byteorder,
            )  # fmt: skip
        return self._storages[record]


def _get(value: object, key: str) -> object:
    """The value under ``key`` of a JSON object; None when it is none or lacks the key."""
    return value.get(key) if isinstance(value, dict) else None


FORMAT = Format(
    name="pt2",
    kind="weights",
    title="torch.export archive",
    suffixes=(".pt2",),
    sniff=sniff,
    read=read,
    family="pickle",
)
