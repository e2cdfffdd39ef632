"""The judge of a pickle: hears of every name, call and state while the machine interprets, and says what is wrong.

Nothing is judged by what is left in the end, for a file can drop what it made. What is said is kept until it is clear
that the bytes are a pickle at all (any text may begin like one).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..pickles import Anomaly, Global, Inert, Observer, Opaque, Payload, Via
from . import pickle_ids, pickle_sizes
from . import pickle_rules as rules
from .model import Rule, Severity
from .pickle_danger import DYNAMIC, DYNAMIC_MODULES, listed, reason
from .pickle_names import ENCODINGS, NOT_CALLED, SAFE, STORAGES, TRUSTED
from .pickle_values import Given, Made, Names, Stored, literal_bytes
from .pickle_words import EXECUTING, is_dunder, looks_like

if TYPE_CHECKING:
    from .sparse import Sparse

# Names whose meaning is in what they are called with: judged at the call, and at the end if there was none.
BY_CALL = frozenset(
    {("builtins", "getattr"), ("builtins", "type"), ("functools", "partial"), ("_functools", "partial")}
)
PACKAGE = frozenset({("torch.jit._script", "unpackage_script_module")})
PLAUSIBLE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")  # what may be a module and a name in it
MAX_SAID = 2000
ARCHIVES = frozenset({b"PK\x03\x04", b"\x1f\x8b\x08\x00", b"\xfd7zX"})  # first bytes: zip, gzip, xz
MAX_MEMO = 1 << 24  # an index beyond makes CPython's memo, an array, take 128 MiB and more
READERS = frozenset({"frame-straddled", "frame-overlap", "frame-unfinished"})
IGNORED = frozenset({"computed-name", "build-on-global", "store-on-global", "frame-too-long"})  # said elsewhere
NO_ITEMS = frozenset({"torch", "torch._utils", "torch._tensor", "numpy.core.multiarray", "numpy._core.multiarray"})


class Judge(Observer):
    """Collects what is said about one stream of pickles: (rule, what, offset, name, severity)."""

    def __init__(self, *, container: str | None = None, plain: bool = False) -> None:
        self.container = container
        self.torchscript = container == "torchscript"  # names below __torch__ are the archive's own, and no Python
        self.tar = container == "torch-tar"
        self.package = container == "torch-package"  # whose pickles call a few functions of torch's
        self.plain = plain  # as an unpickler that knows nothing of joblib
        self.nested = False
        self.arrays = 0  # joblib arrays seen
        self.said: list[tuple[Rule, str, int, str | None, Severity]] = []
        self.names = 0
        self.acts = 0  # calls and states of names that are not in the table, if they could be names at all
        self.denied = 0
        self.listed = 0  # names of the tables of known ways to run code: no text has these by chance
        self.inside: list[tuple[bytes | Payload, int]] = []  # bytes to be looked into
        self.texts: list[tuple[str, int]] = []  # text that may be an encoded pickle
        self.loose: list[tuple[bytes | Payload, int]] = []  # bytes that no call is given, and that look like a pickle
        self.whole = False  # the stream is one pickle, and nothing else
        self.storages: dict[str, int] = {}  # key -> bytes that its member must have
        self.sparse: list[Sparse] = []
        self.order: list[tuple[str, int]] = []  # (key, bytes an element), for the legacy layout
        self.views: dict[str, str] = {}
        self.beside_files: list[str] = []
        self._seen: set[tuple[str, str]] = set()
        self._unknown: set[str] = set()  # names that are neither known to be data nor known to run code
        self._due: dict[tuple[str, str], int] = {}
        self._kept: dict[int, object] = {}  # by identity, so that no identity is taken twice
        self._states: dict[int, tuple[object, int]] = {}
        self.table = Names(self)

    def say(
        self, rule: Rule, what: str, offset: int, name: str | None = None, severity: Severity | None = None
    ) -> None:
        found = severity or rule.severity
        if found == "malicious":
            self.denied += 1
        if len(self.said) < MAX_SAID or found == "malicious" and len(self.said) < 2 * MAX_SAID:
            self.said.append((rule, what, offset, name, found))

    # -- names

    def resolved(self, name: Global, *, opcode: str, literal: bool, known: bool) -> None:
        self.names += 1
        if name.extension is not None:
            return
        if not literal:
            self.say(rules.COMPUTED, "a name is the result of a call", name.offset)
            return
        key = (name.module, name.name)
        if key in self._seen:
            return
        self._seen.add(key)
        if key in BY_CALL:
            self._due.setdefault(key, name.offset)
        else:
            self.name(name.module, name.name, name.offset)

    def name(self, module: str, name: str, offset: int) -> None:
        """Judge one name that would be imported."""
        if (module, name) in SAFE:
            return
        full = f"{module}.{name}"
        if self.torchscript and (module == "__torch__" or module.startswith("__torch__.")):
            return
        if not full.isascii():
            known = looks_like(full)
            if known:
                self.say(rules.HIDDEN, f"the name {full} is made to look like {known}", offset, full)
            else:
                self.say(rules.HIDDEN, f"the name {full} has letters beyond ASCII", offset, full, "suspicious")
            return
        why = None if self.package and (module, name) in PACKAGE else reason(module, name)
        if why is None and module == "__builtin__":
            why = reason("builtins", name)
        if why is not None:
            self.listed += listed(module, name) is not None
            if module in DYNAMIC_MODULES or module.partition(".")[0] in DYNAMIC_MODULES:
                why = DYNAMIC
            self.say(rules.UNSAFE, f"{full} {why}", offset, full)
        elif any(is_dunder(part) for part in name.split(".")):
            self.say(rules.HIDDEN, f"{full} reaches into the interpreter", offset, full)
        elif "." in name and module in TRUSTED and not name[:1].isupper():
            self.say(rules.HIDDEN, f"{full} walks on from a module that is trusted", offset, full)
        else:
            self._unknown.add(full)
            self.say(rules.UNKNOWN, f"{full} is not known to be data", offset, full)

    def finish(self) -> None:
        """Judge what was asked for and never called."""
        for (module, name), offset in self._due.items():
            if (module, name) == ("builtins", "type"):
                self.say(rules.UNKNOWN, "builtins.type is not known to be data", offset, "builtins.type")
            else:
                self.say(rules.UNSAFE, f"{module}.{name} {reason(module, name)}", offset, f"{module}.{name}")
        self._due.clear()

    # -- calls

    def called(
        self, callee: object, args: tuple[object, ...], kwargs: Mapping[object, object], *, opcode: Via, offset: int
    ) -> None:
        if not isinstance(callee, Global):
            if isinstance(callee, Given | Stored):
                self.say(rules.PERSISTENT, "what a persistent id stands for is called", offset, None, "malicious")
            else:
                self.say(rules.COMPUTED, "what is called is the result of a call", offset)
            return
        if callee.extension is not None:
            return
        key = (callee.module, callee.name)
        if key in BY_CALL:
            self._by_call(key, args, offset)
        elif key not in SAFE:
            # "(internal" and "system" on two lines of text are an INST too.
            if PLAUSIBLE.fullmatch(callee.full) and (opcode != "INST" or "." in callee.module or "_" in callee.full):
                self.acts += 1
            self._keep(args, offset)
            if not opcode.startswith("NEWOBJ"):  # these call ``__new__`` of a class, and no ``__init__``
                self._unknown_call(callee, offset)
        elif key[0] in CHECKED:
            self._safe_call(key, args, offset)

    def _unknown_call(self, callee: Global, offset: int) -> None:
        if callee.full in self._unknown:
            self._unknown.discard(callee.full)  # said once
            self.say(rules.UNKNOWN_CALL, f"{callee.full} is called", offset, callee.full)

    def _keep(self, args: tuple[object, ...], offset: int) -> None:
        """Remember bytes and text among the arguments: they may be a pickle, or one in base64. Each value once, however
        often the file hands it on."""
        if len(args) > 16:
            if id(args) in self._kept:
                return
            self._kept[id(args)] = args
        for value in args:
            if isinstance(value, str):
                if len(value) >= 8 and id(value) not in self._kept:
                    self._kept[id(value)] = value
                    self.texts.append((value, offset))
            elif isinstance(value, Payload) and value.kind == "str":
                if id(value) not in self._kept:
                    self._kept[id(value)] = value
                    self.inside.append((value, offset))
            else:
                self._keep_bytes(value, offset)

    def _keep_bytes(self, value: object, offset: int) -> bool:
        """Remember ``value`` when it is bytes of the file; whether it is."""
        data = literal_bytes(value)
        if data is not None and id(value) not in self._kept:
            self._kept[id(value)] = value
            self.inside.append((data, offset))
        return data is not None

    def held(self, value: object, *, offset: int) -> None:
        """Remember bytes that may be a whole pickle, or an archive, by their first and last byte."""
        data = literal_bytes(value)
        if isinstance(data, Payload):
            head, end = data.data.read(data.offset, 4), data.data.read(data.offset + data.nbytes - 1, 1)
        else:
            head, end = (data[:4], data[-1:]) if data else (b"", b"")
        binary = head[:1] == b"\x80" and b"\x02" <= head[1:2] <= b"\x05"
        if (end == b"." and (binary or head[:1] in (b"c", b"("))) or head in ARCHIVES:
            assert data is not None
            self.loose.append((data, offset))

    def _by_call(self, key: tuple[str, str], args: tuple[object, ...], offset: int) -> None:
        """``getattr`` of a class and a plain name is how enums and nested classes are pickled."""
        full = f"{key[0]}.{key[1]}"
        first = args[0] if args else None
        if key[1] == "type":
            self._due.pop(key, None)
            if len(args) == 1 and (first is None or isinstance(first, Global) and (first.module, first.name) in SAFE):
                return
            self.acts += 1
            if len(args) == 3:
                self.say(rules.UNSAFE, "builtins.type builds a class from the file", offset, full)
            else:
                self.say(rules.UNKNOWN, "builtins.type of a value", offset, full)
            return
        self.acts += 1
        self._due.pop(key, None)
        if key[1] == "getattr":
            name = args[1] if len(args) == 2 else None
            if isinstance(first, Global) and isinstance(name, str) and not name.startswith("__"):
                reached = (first.module, f"{first.name}.{name}")
                if reached in SAFE:
                    return
                if first.module not in TRUSTED and name.isidentifier():
                    self.name(*reached, offset)
                    return
            self.say(rules.UNSAFE, f"{full} {reason(*key)}", offset, full)
            return
        if isinstance(first, Global) and first.extension is None and reason(first.module, first.name) is None:
            self.say(rules.UNKNOWN, f"{full} carries the callable {first.full}", offset, full)
        else:
            self.say(rules.UNSAFE, f"{full} {reason(*key)}", offset, full)

    def _safe_call(self, key: tuple[str, str], args: tuple[object, ...], offset: int) -> None:
        module, name = key
        if key in NOT_CALLED:
            self.say(rules.UNSAFE, f"{module}.{name} opens a file of the file's choice", offset, f"{module}.{name}")
        elif name == "_load_from_bytes":
            if not args or not self._keep_bytes(args[0], offset):
                self.say(rules.COMPUTED, "a pickle that the file computes is loaded", offset)
        elif key == ("_codecs", "encode"):
            encoding = args[1] if len(args) > 1 else "utf-8"
            if not isinstance(encoding, str) or encoding.lower() not in ENCODINGS:
                self.say(rules.UNKNOWN, "_codecs.encode with a codec that is no text encoding", offset,
                         "_codecs.encode")  # fmt: skip
        elif name in ("bytes", "bytearray"):
            if len(args) == 1 and isinstance(args[0], int) and args[0] > 1 << 20:
                self.say(rules.ODD, f"builtins.{name} asks for {args[0]} bytes of memory", offset)
        elif name == "_rebuild_from_type_v2":
            self._indirect(module, args[0] if args else None, args[2] if len(args) > 2 else (), offset)
            if len(args) > 3:
                self._state(("torch._tensor", name), args[3], offset)
        elif name == "__generator_ctor":
            if len(args) > 1 and not (isinstance(args[1], Global) and args[1].module.startswith("numpy.random.")):
                self.say(rules.COMPUTED, "a random generator is made by a callable of the file's choice", offset)
        elif module == "copyreg":
            self._indirect(module, args[0] if args else None, args[1:] if name != "_reconstructor" else (), offset)
        elif module == "torch._utils":
            if name == "_rebuild_parameter_with_state" and len(args) > 3:
                self._state(key, args[3], offset)
            if "sparse" in name:
                self._sparse(args, offset)
            self._tensor(name, args, offset)
        elif what := pickle_sizes.asked(module, name, args):
            self.say(rules.ODD, what, offset)

    def _indirect(self, wrapper: str, callee: object, args: object, offset: int) -> None:
        """A name in the table calls what it is given."""
        if isinstance(callee, Global):
            key = (callee.module, callee.name)
            if callee.module == "copyreg" or callee.name == "_rebuild_from_type_v2":
                self.say(rules.COMPUTED, "a call is wrapped in a call", offset)
            elif key not in SAFE:
                self.acts += 1
                self._keep(args if isinstance(args, tuple) else (), offset)
                if wrapper != "copyreg":
                    self._unknown_call(callee, offset)
            elif isinstance(args, tuple):
                self._safe_call(key, args, offset)
            else:
                self.say(rules.COMPUTED, "the arguments of a call are the result of a call", offset)
        elif callee is not None:
            self.say(rules.COMPUTED, "what is called is the result of a call", offset)

    def _sparse(self, args: tuple[object, ...], offset: int) -> None:
        from .sparse import sparse_of

        found = sparse_of(args, offset)
        if found is not None and len(self.sparse) < 1000:
            self.sparse.append(found)

    def _tensor(self, name: str, args: tuple[object, ...], offset: int) -> None:
        """Size, stride and offset must lie within the storage that the tensor views."""
        if name not in ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_qtensor"):
            return
        if len(args) < 4:
            self.say(rules.MALFORMED, f"torch._utils.{name} lacks arguments", offset)
            return
        storage, start, size, stride = args[:4]
        if isinstance(size, Inert) or isinstance(stride, Inert) or not isinstance(storage, Stored):
            if not isinstance(storage, Inert):
                self.say(rules.MALFORMED, "a tensor's storage is no storage", offset)
            return
        numbers = [start, *(size if isinstance(size, tuple | list) else (None,)),
                   *(stride if isinstance(stride, tuple | list) else (None,))]  # fmt: skip
        if any(type(n) is not int or not 0 <= n < 1 << 63 for n in numbers):
            self.say(rules.MALFORMED, "a tensor's offset, size or stride is no number of elements", offset)
            return
        assert isinstance(size, tuple | list) and isinstance(stride, tuple | list) and isinstance(start, int)
        if len(size) != len(stride) or len(size) > 64:
            self.say(rules.MALFORMED, "a tensor's size and stride differ in length", offset)
        elif storage.whole and 0 not in size:
            last = start + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
            if last >= storage.numel:
                what = f"a tensor reaches to element {last} of a storage of {storage.numel}"
                self.say(rules.MALFORMED, what, offset)

    # -- states and items

    def built(self, target: object, state: object, *, offset: int) -> None:
        if isinstance(target, Global):
            self.acts += PLAUSIBLE.fullmatch(target.full) is not None
            self.say(rules.BUILD, f"attributes of {target.full} would be set", offset, target.full)
            return
        if isinstance(target, Given | Stored):
            self.say(rules.MALFORMED, "a storage is given a state", offset)
            return
        callee = target.callee if isinstance(target, Made | Opaque) else None
        key = (callee.module, callee.name) if isinstance(callee, Global) else None
        if isinstance(target, Opaque):
            self._keep((state,) if not isinstance(state, tuple) else state, offset)
        self._state(key, state, offset)

    def _state(self, key: tuple[str, str] | None, state: object, offset: int) -> None:
        halves = state if isinstance(state, tuple) and len(state) == 2 else (state,)
        for index, half in enumerate(halves):
            keys: list[object] = []
            values: list[object] = []
            if isinstance(half, dict):
                # The same large state may be given again and again.
                known = self._states.get(id(half))
                if known is not None and known[1] == len(half):
                    continue
                if len(half) > 16:
                    self._states[id(half)] = (half, len(half))
                keys, values = list(half), list(half.values())
            elif isinstance(half, Opaque):
                keys, values = [k for k, _ in half.pairs], [v for _, v in half.pairs]
            for name, value in zip(keys, values, strict=True):
                if not isinstance(name, str) or not is_dunder(name):
                    continue
                inert = key is None or key in SAFE
                whose = ".".join(key) if key else "an object"
                if name in EXECUTING and (inert or index == 1 or isinstance(value, Global | Opaque | Given)):
                    self.say(rules.BUILD, f"the state of {whose} sets {name}", offset, whose)
                elif inert:
                    self.say(rules.ODD, f"the state of {whose} sets {name}", offset)

    def stored(self, target: object, items: list[object], *, opcode: str, offset: int) -> None:
        if isinstance(target, Global):
            self.acts += PLAUSIBLE.fullmatch(target.full) is not None
            self.say(rules.BUILD, f"items of {target.full} would be set", offset, target.full)
        elif isinstance(target, Given | Stored) or (
            isinstance(target, Made) and (target.callee.module in NO_ITEMS)
        ):  # fmt: skip
            self.say(rules.MALFORMED, f"{opcode} on a tensor or storage", offset)

    # -- persistent ids, extension codes, anomalies

    def persistent(self, pid: object, *, opcode: str, offset: int) -> None:
        return None  # ``persist`` both judges and answers

    def persist(self, pid: object, offset: int) -> object:
        """Judge a persistent id, and answer it."""
        return pickle_ids.answer(self, pid, offset)

    def extension(self, code: int, *, opcode: str, offset: int) -> None:
        self.say(rules.EXTENSION, f"{opcode} {code} stands for a name that is not in the file", offset)

    @staticmethod
    def itemsize(cls: object) -> int | None:
        """Bytes an element of a storage class; None for anything else."""
        if isinstance(cls, Global) and (cls.module, cls.name) in SAFE:
            return STORAGES.get(cls.name)
        return None

    def beside(self, name: object, offset: int) -> None:
        """A joblib array is kept in a file of its own beside this one."""
        if not isinstance(name, str) or "/" in name or "\\" in name or name in ("", ".", ".."):
            self.say(rules.UNSAFE, "joblib would load an array from a file outside this folder", offset)
        else:
            self.beside_files.append(name)

    def anomaly(self, anomaly: Anomaly) -> None:
        if anomaly.kind in IGNORED:
            return
        if anomaly.kind == "memo-sparse":
            digits = anomaly.detail.split()[1]
            if digits.isdigit() and int(digits) > MAX_MEMO:
                self.say(rules.ODD, f"a memo index of {digits} makes CPython's unpickler take that much memory",
                         anomaly.offset)  # fmt: skip
            return
        rule = rules.DISAGREE if anomaly.kind in READERS else rules.ODD
        self.say(rule, f"{anomaly.kind}: {anomaly.detail}", anomaly.offset)


CHECKED = frozenset({
    "torch", "torch.cuda", "torch.sparse", "torch.storage", "torch._tensor", "torch._utils", "numpy",
    "numpy.core.multiarray", "numpy._core.multiarray", "numpy.rec", "numpy.core.records", "numpy._core.records",
    "numpy.random._pickle", "fractions", "_codecs", "builtins", "copyreg", *(module for module, _ in NOT_CALLED),
})  # fmt: skip
