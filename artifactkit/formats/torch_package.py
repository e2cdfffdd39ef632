"""torch-package: what ``torch.package`` writes, a zip archive of pickles, Python sources and storages.

Any member may be a pickle, whatever its name. A script module in a package is a pickle of its own.
"""

from __future__ import annotations

from ..artifact import Weights
from ..checkpoint import collect
from ..containers.pickle_family import PICKLE_START
from ..pickles import Global, Opaque
from ..torch_files import Loader, TorchArchive
from ..torch_script import ScriptClasses
from ..types import Format, Head, ReadOptions

DATA = ".data/"
STORAGE = ".storage"
SCRIPT_MODULE = "torch.jit._script.unpackage_script_module"


def sniff(head: Head) -> bool:
    return head.kind == "torch-package"


def read(head: Head, options: ReadOptions) -> Weights:
    loader = Loader(head.file)
    package = _Package(TorchArchive(head.open_zip(), loader))
    pickles = package.pickles()
    values = {name.removesuffix(".pkl"): package.load(name) for name in pickles}
    value = next(iter(values.values())) if len(values) == 1 else values
    members = None if options.everything else ScriptClasses(package.archive, f"{DATA}ts_code/code/").members
    weights = collect(
        value, format="torch-package", file=head.path, options=options, machines=loader.machines,
        file_size=package.archive.unpacked_size, members=members,
    )  # fmt: skip
    package.archive.say()
    sources = sum(m.name.endswith(".py") for m in package.archive.zip.members)
    loader.note(
        f"torch.package with {len(pickles)} pickles ({', '.join(pickles[:4])}) and {sources} Python files, not run"
    )
    weights.notes[:0] = loader.notes
    return weights


class _Package:
    def __init__(self, archive: TorchArchive) -> None:
        self.archive = archive
        self._scripts: dict[str, object] = {}

    def pickles(self) -> list[str]:
        """The records that are pickles, told by their first two bytes."""
        out = []
        for member in self.archive.zip.members:
            record = member.name.removeprefix(self.archive.root + "/")
            if record.startswith(DATA) or record.endswith((".py", "/")) or member.size < 2:
                continue
            if self.archive.zip.member_bytes(member.name).read(0, 2) in PICKLE_START[2:]:
                out.append(record)
        return out

    def load(self, record: str) -> object:
        return self.archive.pickle(record, DATA, STORAGE, self._reduce)

    def _reduce(self, pid: tuple[object, ...]) -> object:
        """``('reduce_package'[, id], function, arguments)``: an object that a function of the package would make."""
        callee, args = pid[-2:] if len(pid) in (3, 4) else (None, ())
        if not isinstance(args, tuple):
            args = (args,)
        if isinstance(callee, Global) and callee.full == SCRIPT_MODULE and len(args) == 1 and isinstance(args[0], str):
            return self._script(args[0])
        return Opaque(callee, args)

    def _script(self, number: str) -> object:
        record = f"{DATA}ts_code/{number}/data.pkl"
        if number not in self._scripts and record in self.archive:
            self._scripts[number] = None  # a script module that holds itself is not one
            # Here the keys of storages are the whole names of their records.
            self._scripts[number] = self.archive.pickle(record, DATA, "", self._reduce)
        return self._scripts.get(number)


FORMAT = Format(
    name="torch-package",
    kind="weights",
    title="torch.package archive",
    suffixes=(".pt", ".package"),
    sniff=sniff,
    read=read,
    family="pickle",
)
