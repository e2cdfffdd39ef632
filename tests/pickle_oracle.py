"""CPython's C unpickler as an oracle, in a process of its own, with everything that could act stubbed out.

``find_class`` gives empty stub classes and ``persistent_load`` empty objects, so nothing that a pickle names is
imported or called. The address space is limited: a memo index of 2**31 makes CPython ask for 32 GiB.

Run as a script it serves requests on stdin: a length of 4 bytes, then the pickle; it answers one line of JSON each.
"""

from __future__ import annotations

import io
import json
import pickle
import resource
import sys


def canonical(value: object, depth: int = 0, inside: frozenset[int] = frozenset()) -> object:
    """A value as JSON that tells types apart, so that two processes can compare what they built."""
    kind = type(value)
    if value is None or kind in (bool, str):
        return ["s", value.encode("utf-8", "surrogatepass").hex()] if kind is str else value
    if kind is int:
        return ["i", hex(value)]
    if kind is float:
        return ["f", repr(value)]
    if isinstance(value, memoryview):
        return ["bytearray", bytes(value).hex()]
    if kind in (bytes, bytearray):
        return [kind.__name__, value.hex()]
    if id(value) in inside or depth > 50:
        return "..."
    inside = inside | {id(value)}
    if isinstance(value, dict):
        return ["dict", [[canonical(k, depth + 1, inside), canonical(v, depth + 1, inside)] for k, v in value.items()]]
    if kind in (list, tuple):
        return [kind.__name__, [canonical(v, depth + 1, inside) for v in value]]
    if kind in (set, frozenset):
        return [kind.__name__, sorted(json.dumps(canonical(v, depth + 1, inside)) for v in value)]
    return ["other"]


class Stub:
    def __new__(cls, *args, **kwargs):
        return object.__new__(cls)

    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        return Stub()

    __setstate__ = append = extend = add = staticmethod(lambda *args: None)

    def __setitem__(self, key, value):
        pass


class StubMeta(type):
    def __setitem__(cls, key, value):
        pass


class Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="latin1")
        self.names: list[list[str]] = []
        self.classes: dict[tuple[str, str], type] = {}

    def find_class(self, module: str, name: str) -> type:
        self.names.append([module, name])
        if (module, name) not in self.classes:
            self.classes[(module, name)] = StubMeta("Named", (Stub,), {})
        return self.classes[(module, name)]

    def persistent_load(self, pid: object) -> object:
        self.names.append(["", "pid"])
        return object()


def judge(data: bytes) -> dict[str, object]:
    """Whether the C unpickler accepts ``data``, the names that it asked for, and the value when it has none of them."""
    unpickler = Unpickler(data)
    try:
        value = unpickler.load()
    except MemoryError:
        return {"ok": None, "names": unpickler.names, "why": "MemoryError"}
    except Exception as error:  # noqa: BLE001  whatever it is, it is a refusal
        return {"ok": False, "names": unpickler.names, "why": f"{type(error).__name__}: {error}"[:300]}
    out: dict[str, object] = {"ok": True, "names": unpickler.names, "why": ""}
    if not unpickler.names:
        out["value"] = canonical(value)
    return out


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    while True:
        head = sys.stdin.buffer.read(4)
        if len(head) < 4:
            return
        data = sys.stdin.buffer.read(int.from_bytes(head, "little"))
        sys.stdout.buffer.write(json.dumps(judge(data)).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
