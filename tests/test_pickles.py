"""The pickle machine by itself: what it refuses and where, what it leaves in the file, what it tells an observer."""

from __future__ import annotations

import collections
import datetime
import pickle
import struct
import tracemalloc
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING

import pytest

from artifactkit.errors import ArtifactkitError, Corrupt, LimitExceeded, Truncated
from artifactkit.files import Memory
from artifactkit.pickles import (
    ANOMALIES,
    Anomaly,
    Call,
    Dict,
    EightBit,
    Global,
    Limits,
    Machine,
    Observer,
    Opaque,
    Payload,
    Persistent,
    constant,
    function,
)
from artifactkit.tensor_names import tensor_table


def load(data: bytes, **options: object) -> object:
    return machine(data, **options).load()


def machine(data: bytes, **options: object) -> Machine:
    options.setdefault("table", {})
    return Machine(Memory(data, "some.pkl"), **options)  # type: ignore[arg-type]


# -- refusals, each with a twin that passes

REFUSALS: dict[str, tuple[bytes, bytes, type[ArtifactkitError], str]] = {
    "unknown opcode": (b"\xff.", b"N.", Corrupt, "no such opcode"),
    "protocol 6": (b"\x80\x06N.", b"\x80\x05N.", Corrupt, "PROTO"),
    "no STOP": (b"]", b"].", Truncated, "without STOP"),
    "empty": (b"", b"N.", Truncated, "without STOP"),
    "nothing to return": (b".", b"N.", Corrupt, "nothing on the stack"),
    "underflow": (b"a.", b"]Na.", Corrupt, "the stack is empty"),
    "no mark": (b"t.", b"(t.", Corrupt, "no mark"),
    "below the mark": (b"N(\x85.", b"N(N\x85.", Corrupt, ""),
    "nothing memoised": (b"h\x05.", b"]q\x05h\x05.", Corrupt, "under 5"),
    "list as key": (b"}]Ns.", b"})Ns.", Corrupt, "not hashable"),
    "dict in a tuple as key": (b"}}\x85Ns.", b"})\x85Ns.", Corrupt, "not hashable"),
    "list in a set": (b"\x8f(]\x90.", b"\x8f()\x90.", Corrupt, "not hashable"),
    "list in a frozenset": (b"(]\x91.", b"()\x91.", Corrupt, "not hashable"),
    "append to a dict": (b"}Na.", b"]Na.", Corrupt, "no list"),
    "append to a tuple": (b")Na.", b"]Na.", Corrupt, "no list"),
    "set in a set": (b"\x8fNNs.", b"}NNs.", Corrupt, "holds none"),
    "add to a list": (b"](N\x90.", b"\x8f(N\x90.", Corrupt, "no set"),
    "odd dict": (b"(NNNd.", b"(NNd.", Corrupt, "without a value"),
    "odd SETITEMS": (b"}(NNNu.", b"}(NNu.", Corrupt, "without a value"),
    "BUILD on a list": (b"]}NNsb.", b"]Nb.", Corrupt, "takes no state"),
    "BUILD with a number": (b"]K\x01b.", b"]Nb.", Corrupt, "no dict"),
    "call of a number": (b"K\x01)R.", b"cm\nf\n)R.", Corrupt, "no name"),
    "arguments no tuple": (b"cm\nf\nNR.", b"cm\nf\n)R.", Corrupt, "no tuple"),
    "construct a string": (b"U\x01a)\x81.", b"cm\nf\n)\x81.", Corrupt, "no name"),
    "kwargs no dict": (b"cm\nf\n)N\x92.", b"cm\nf\n)}\x92.", Corrupt, "no dict"),
    "a name that is a number": (b"K\x01K\x01\x93.", b"U\x01aU\x01b\x93.", Corrupt, "no text"),
    "an empty name": (b"c\nf\n.", b"cm\nf\n.", Corrupt, "empty name"),
    "invalid UTF-8": (b"\x8c\x01\xff.", b"\x8c\x02\xc3\xa9.", Corrupt, "not UTF-8"),
    "unquoted STRING": (b"Sabc\n.", b"S'abc'\n.", Corrupt, "not quoted"),
    "a negative LONG4": (b"\x8b\xff\xff\xff\xff.", b"\x8b\0\0\0\0.", Corrupt, "negative"),
    "LONG4 past the end": (b"\x8b\xff\xff\xff\x7f.", b"\x8b\x01\0\0\0\x05.", Truncated, "LONG4"),
    "BINBYTES8 past the end": (b"\x8e" + b"\xff" * 7 + b"\x7f.", b"\x8e" + bytes(8) + b".", Truncated, "BINBYTES8"),
    "BINUNICODE past the end": (b"X\xff\xff\xff\xff.", b"X\0\0\0\0.", Truncated, "BINUNICODE"),
    "a negative BINSTRING": (b"T\xff\xff\xff\xff.", b"T\0\0\0\0.", Corrupt, "negative"),
    "FRAME past the end": (b"\x95" + b"\xff" * 8 + b"N.", b"\x95\x02" + bytes(7) + b"N.", Truncated, "FRAME"),
    "digits": (b"I" + b"9" * 5000 + b"\n.", b"I" + b"9" * 4000 + b"\n.", Corrupt, "5000 digits"),
    "a huge line of digits": (b"L" + b"9" * 100_000 + b"L\n.", b"L9L\n.", LimitExceeded, "too long"),
    "a huge name": (b"c" + b"m" * 100_000 + b"\nf\n.", b"cm\nf\n.", LimitExceeded, "too long"),
    "out-of-band buffer": (b"\x97.", b"\x96" + bytes(8) + b"\x98.", Corrupt, "outside the pickle"),
    "extension 0": (b"\x82\0.", b"\x82\x01.", Corrupt, "extension code"),
    "a negative PUT": (b"Np-1\n.", b"Np1\n.", Corrupt, "memo index"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_say_what_and_where_and_their_twins_pass(case: str) -> None:
    bad, good, kind, words = REFUSALS[case]
    load(good)
    with pytest.raises(kind) as caught:
        load(bad, member="archive/data.pkl")
    error = caught.value
    assert type(error) is kind
    assert words in error.what
    assert error.file == "some.pkl"
    assert error.member == "archive/data.pkl"
    assert error.offset is not None and 0 <= error.offset <= len(bad)
    assert error.exit_code == 3


def test_the_offset_is_that_of_the_opcode_whatever_the_start() -> None:
    data = b"junk" + b"\x80\x02}K\x01K\x02sh\x63."
    with pytest.raises(Corrupt, match="BINGET") as caught:
        load(data, start=4)
    assert caught.value.offset == 4 + 8


EVERY = pickle.dumps(
    {
        "a": [1, -5, 2.5, None, True, 2**70],
        "b": {b"bytes", "text"},
        "c": (1, 2, (3, frozenset([4]))),
        "d": bytearray(b"x"),
    }
    | {"e": datetime.datetime(2020, 1, 1), "f": collections.OrderedDict(a=1), "g": EightBit, "h": "é\udc80"}
    | {"i": list(range(20)), "j": "x" * 257, "k": b"y" * 257, "l": {i: str(i) for i in range(20)}, "m": 300},
    4,
)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_cut_at_any_byte_is_truncated(protocol: int) -> None:
    data = pickle.dumps(pickle.loads(EVERY), protocol)
    table = tensor_table()
    load(data, table=table)
    for end in range(len(data)):
        with pytest.raises(Corrupt) as caught:
            load(data[:end], table=table)
        assert isinstance(caught.value, Truncated), (end, caught.value)


def test_a_pickle_with_any_byte_changed_gives_a_value_or_one_of_our_errors() -> None:
    table = tensor_table()
    for protocol in (0, 2, 4):
        data = pickle.dumps(
            {"a": [1, 2.5, (None, "text")], "b": {3: b"x"}, "c": collections.OrderedDict(k=2**70)}, protocol
        )
        for at in range(len(data)):
            for byte in (*range(0, 256, 23), 0x7D, 0x52, 0x62, 0x81):
                broken = bytearray(data)
                broken[at] = byte
                try:
                    load(bytes(broken), table=table)
                except Corrupt:
                    pass


# -- bombs: each ends at once, with an error or with little memory


def nested_tuples(depth: int) -> bytes:
    return b")" + b"\x85" * depth


MODULUS = 2**61 - 1  # multiples of it all hash to 0

BOMBS: dict[str, tuple[bytes, type[ArtifactkitError] | None]] = {
    "memo index 2**31": (b"Nr\xff\xff\xff\x7f.", None),
    "memo index 2**62": (b"Np4611686018427387904\n.", None),
    "nesting as a value": (b"]" * 200_000 + b"a" * 199_999 + b".", None),
    "nested tuples as a value": (nested_tuples(300_000) + b".", None),
    "nested tuples as a key": (b"}" + nested_tuples(300_000) + b"Ns.", LimitExceeded),
    "a shared tuple as a key": (b"}" + b")" + b"2\x86" * 200 + b"Ns.", LimitExceeded),
    "a shared tuple in a set": (b"\x8f(" + b")" + b"2\x86" * 90 + b"\x90.", LimitExceeded),
    "nested frozensets": (b"(" * 5_000 + b"K\x01" + b"\x91" * 5_000 + b".", LimitExceeded),
    "laughing dicts": (b"}q\0" + b"".join(b"}(K\x01h\0K\x02h\0u0" for _ in range(10_000)) + b".", None),
    "colliding integers": (
        b"}(" + b"".join(b"\x8a\x0b" + (MODULUS * i).to_bytes(11, "little") + b"N" for i in range(1, 60_000)) + b"u.",
        LimitExceeded,
    ),
    "hashing one long integer": (
        b"\x8b" + struct.pack("<i", 200_000) + b"\x7f" * 200_000 + b"q\0}" + b"h\0Ns" * 200_000 + b".",
        LimitExceeded,
    ),
    "copying a memoised state": (
        b"}(" + b"".join(struct.pack("<BI", 74, i) + b"N" for i in range(3000)) + b"uq\0cm\nC\n)\x81"
        + b"h\0b" * 200_000 + b".",
        LimitExceeded,
    ),
    "a list made of a memoised list": (
        b"](" + b"N" * 20_000 + b"eq\0\x85q\1" + b"cbuiltins\nset\nq\x02" + b"h\2h\1R0" * 50_000 + b"N.",
        LimitExceeded,
    ),
    "marks": (b"(" * 500_000 + b"N.", None),
    "many calls": (b"cm\nf\nq\0)R" + b"h\0)R0" * 50_000 + b".", None),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_errors_and_no_hang(name: str) -> None:
    data, kind = BOMBS[name]
    if kind is None:
        load(data, table=tensor_table())
    else:
        with pytest.raises(kind):
            load(data, table=tensor_table())


def test_ordinary_nested_keys_pass() -> None:
    value = {((1, 2), frozenset([3, (4, "x")])): 1, (2**80, 2.5): 2, **{(i, -i): i for i in range(5000)}}
    assert load(pickle.dumps(value, 4)) == value


def test_opcodes_memory_and_work_can_be_limited() -> None:
    data = b"]" + b"N0" * 1000 + b"."
    load(data, limits=Limits(opcodes=3000))
    with pytest.raises(LimitExceeded, match="too many opcodes"):
        load(data, limits=Limits(opcodes=1000))
    many = b"\x8f0" * 1000 + b"N."
    load(many, limits=Limits(memory=1 << 20))
    with pytest.raises(LimitExceeded, match="too many objects"):
        load(many, limits=Limits(memory=1 << 16))


# -- large values stay in the file


class Zeros:
    """Ten gigabytes of zeros behind a few opcodes, none of them stored."""

    def __init__(self, head: bytes, zeros: int, tail: bytes) -> None:
        self.head, self.zeros, self.tail = head, zeros, tail
        self.size = len(head) + zeros + len(tail)

    def read(self, offset: int, n: int) -> bytes:
        assert offset + n <= self.size
        assert n <= 1 << 20, "a machine reads through a bounded window"
        start, end = len(self.head), len(self.head) + self.zeros
        out = self.head[offset : offset + n]
        out += bytes(max(0, min(offset + n, end) - max(offset, start)))
        return out + self.tail[max(0, offset - end) : max(0, offset + n - end)]


@pytest.mark.parametrize("opcode", [b"\x8e", b"\x8d", b"\x96"])
def test_long_values_are_left_in_the_file(opcode: bytes) -> None:
    nbytes = 10 << 30
    data = Zeros(b"\x80\x05](" + opcode + nbytes.to_bytes(8, "little"), nbytes, b"K\x07e.")
    tracemalloc.start()
    value = Machine(data, table={}).load()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
    assert isinstance(value, list)
    payload, seven = value
    assert seven == 7
    assert isinstance(payload, Payload)
    assert (payload.offset, payload.nbytes) == (13, nbytes)
    assert payload.kind == {b"\x8e": "bytes", b"\x8d": "str", b"\x96": "bytearray"}[opcode]
    with pytest.raises(LimitExceeded):
        payload.read()


def test_short_values_are_read_and_the_threshold_is_the_callers() -> None:
    assert load(pickle.dumps(b"x" * 65536, 3)) == b"x" * 65536
    kept = load(pickle.dumps(b"x" * 65537, 3))
    assert isinstance(kept, Payload)
    assert kept.read() == b"x" * 65537
    assert isinstance(load(pickle.dumps("abc", 4), payload_min=2), Payload)


def test_values_across_the_edge_of_the_window() -> None:
    value = ["x" * n for n in range(0, 3000, 7)] + [b"y" * 60_000, "é" * 30_000] * 4
    for protocol in (0, 2, 4):
        assert load(pickle.dumps(value, protocol), table=tensor_table()) == value


# -- several pickles, other things between them


def test_load_goes_on_after_stop_and_the_memo_does_not() -> None:
    data = pickle.dumps([1], 2) + pickle.dumps((2,), 4) + b"h\0."
    reader = machine(data)
    assert reader.load() == [1]
    assert reader.position == len(pickle.dumps([1], 2))
    assert reader.load() == (2,)
    with pytest.raises(Corrupt, match="nothing is memoised"):
        reader.load()


def test_a_handler_may_take_bytes_and_pickles_from_the_stream() -> None:
    def taking(call: Call) -> object:
        payload = call.machine.take(4)
        return payload.read(), call.machine.nested()

    inner = pickle.dumps({"inner": 1}, 4)
    data = b"\x80\x02](cm\ntake\n)R" + b"\1\2\3\4" + inner + b"K\x07e."
    reader = machine(data, table={("m", "take"): function(taking)})
    assert reader.load() == [(b"\1\2\3\4", {"inner": 1}), 7]
    short = machine(b"cm\ntake\n)R\1\2", table={("m", "take"): function(taking)})
    with pytest.raises(Truncated) as caught:
        short.load()
    assert caught.value.offset == 9


# -- names and inert values


def test_names_outside_the_table_become_opaque_and_are_counted() -> None:
    class Thing:
        pass

    data = b"\x80\x02cevil\nrun\nq\0(K\x01}tRq\1}U\x01aK\x05sb(K\x02eU\x01kK\x03sh\0)\x81\x86."
    reader = machine(data)
    value = reader.load()
    assert isinstance(value, tuple)
    first, second = value
    assert isinstance(first, Opaque)
    assert (first.module, first.name, first.args, first.via) == ("evil", "run", (1, {}), "REDUCE")
    assert first.attrs == {"a": 5}
    assert first.items == [2]
    assert first.pairs == [("k", 3)]
    assert isinstance(second, Opaque)
    assert second.via == "NEWOBJ"
    assert reader.unknown == reader.names == {("evil", "run"): 1}
    assert repr(first) == "<Opaque evil.run>"


def test_the_table_is_exact_and_constants_stand_for_themselves() -> None:
    table = {("m", "one"): constant(1), ("m", "f"): function(lambda call: ("called", *call.args))}
    reader = machine(b"](cm\none\ncm\nf\n)Rcm\nfx\ncm.f\nf\ncm\none.f\ne.", table=table)
    value = reader.load()
    assert isinstance(value, list)
    assert value[:2] == [1, ("called",)]
    assert value[2:] == [Global("m", "fx"), Global("m.f", "f"), Global("m", "one.f")]
    assert set(reader.unknown) == {("m", "fx"), ("m.f", "f"), ("m", "one.f")}
    assert len(reader.names) == 5


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_python_2_names_are_renamed_below_protocol_3(protocol: int) -> None:
    for (module, name), new in {
        **NAME_MAPPING,
        **{(m, "other"): (n, "other") for m, n in IMPORT_MAPPING.items()},
    }.items():
        data = (b"\x80" + bytes([protocol])) * (protocol > 1) + f"c{module}\n{name}\n.".encode()
        if (module, name) in NAME_MAPPING or module in IMPORT_MAPPING:
            expected = new if protocol < 3 else (module, name)
            reader = machine(data)
            assert reader.load() == Global(*expected)
            assert set(reader.names) == {expected}


def test_what_was_seen_before_an_error_stays_known() -> None:
    reader = machine(b"\x80\x02cos\nsystem\nX\x02\0\0\0ls\x85R\xff")
    with pytest.raises(Corrupt):
        reader.load()
    assert reader.names == {("posix", "system") if ("os", "system") in NAME_MAPPING else ("os", "system"): 1}


def test_persistent_ids() -> None:
    value = load(b"\x80\x02](Pabc\nK\x05Qe.")
    assert isinstance(value, list)
    assert [item.pid for item in value if isinstance(item, Persistent)] == ["abc", 5]
    assert load(b"\x80\x02](Pabc\nK\x05Qe.", persistent=lambda pid: ("answer", pid)) == [
        ("answer", "abc"),
        ("answer", 5),
    ]


def test_python_2_text() -> None:
    assert load(b"U\x03abc.") == "abc"
    kept = load(b"U\x02\xc3\xa9.")
    assert isinstance(kept, EightBit)
    assert (bytes(kept), kept.text()) == (b"\xc3\xa9", "é")
    assert EightBit(b"\xe9").text() == "é"


# -- what an observer hears


class Recorder(Observer):
    def __init__(self) -> None:
        self.heard: list[tuple[object, ...]] = []

    def resolved(self, name, *, opcode, literal, known):  # type: ignore[no-untyped-def]
        self.heard.append(("resolved", name.full, opcode, literal, known))

    def called(self, callee, args, kwargs, *, opcode, offset):  # type: ignore[no-untyped-def]
        self.heard.append(("called", getattr(callee, "full", callee), len(args), opcode))

    def built(self, target, state, *, offset):  # type: ignore[no-untyped-def]
        self.heard.append(("built", getattr(target, "full", target), state))

    def stored(self, target, items, *, opcode, offset):  # type: ignore[no-untyped-def]
        self.heard.append(("stored", target.full, items, opcode))

    def persistent(self, pid, *, opcode, offset):  # type: ignore[no-untyped-def]
        self.heard.append(("persistent", pid, opcode))

    def extension(self, code, *, opcode, offset):  # type: ignore[no-untyped-def]
        self.heard.append(("extension", code, opcode))

    def anomaly(self, anomaly: Anomaly) -> None:
        self.heard.append(("anomaly", anomaly.kind))


NAMED = ("resolved", "m.f", "GLOBAL", True, False)
HEARD: dict[str, tuple[bytes, list[tuple[object, ...]]]] = {
    "REDUCE": (b"cm\nf\n)R.", [NAMED, ("called", "m.f", 0, "REDUCE")]),
    "a result that is dropped": (b"(cm\nf\nNo0N.", [NAMED, ("called", "m.f", 1, "OBJ")]),
    "INST": (b"(NNim\nC\n.", [("resolved", "m.C", "INST", True, False), ("called", "m.C", 2, "INST")]),
    "NEWOBJ_EX": (
        b"\x80\x04cm\nC\n)}\x92.",
        [("resolved", "m.C", "GLOBAL", True, False), ("called", "m.C", 0, "NEWOBJ_EX")],
    ),
    "only a name": (b"\x80\x04U\x01mU\x01f\x93.", [("resolved", "m.f", "STACK_GLOBAL", True, False)]),
    "BUILD": (
        b"cm\nC\n)R}b.",
        [("resolved", "m.C", "GLOBAL", True, False), ("called", "m.C", 0, "REDUCE"), ("built", "m.C", {})],
    ),
    "BUILD on a module's function": (
        b"cm\nf\nN}\x86b.",
        [
            NAMED, ("built", "m.f", (None, {})), ("anomaly", "build-on-global"),
            ("anomaly", "proto-missing"),
        ],
    ),
    "append to sys.path": (
        b"csys\npath\nU\x01.a.",
        [("resolved", "sys.path", "GLOBAL", True, False), ("stored", "sys.path", ["."], "APPEND"),
         ("anomaly", "store-on-global")],
    ),
    "set in os.environ": (
        b"cos\nenviron\nU\x01aU\x01bs.",
        [("resolved", "os.environ", "GLOBAL", True, False), ("stored", "os.environ", ["a", "b"], "SETITEM"),
         ("anomaly", "store-on-global")],
    ),
    "a call of a call's result": (
        b"cm\nf\n)R)R.",
        [NAMED, ("called", "m.f", 0, "REDUCE"), ("called", "m.f", 0, "REDUCE")],
    ),
    "extension": (
        b"\x80\x02\x82\x07.",
        [("extension", 7, "EXT1"), ("resolved", "copyreg.(extension 7)", "EXT1", False, False)],
    ),
    "persistent id": (b"Pabc\n.", [("persistent", "abc", "PERSID")]),
    "a computed name": (
        b"\x80\x04cm\nf\n)RU\x01x\x93.",
        [NAMED, ("called", "m.f", 0, "REDUCE"), ("anomaly", "computed-name"),
         ("resolved", "(computed).x", "STACK_GLOBAL", False, False)],
    ),
    "known": (b"cknown\nf\n.", [("resolved", "known.f", "GLOBAL", True, True)]),
}  # fmt: skip


@pytest.mark.parametrize("case", HEARD)
def test_an_observer_hears_everything_in_order(case: str) -> None:
    data, expected = HEARD[case]
    recorder = Recorder()
    machine(data, table={("known", "f"): constant(0)}, observer=recorder).load()
    assert recorder.heard == expected


class Refusal(ArtifactkitError):
    pass


def test_raising_from_an_observer_ends_the_load() -> None:
    class Strict(Observer):
        def called(self, *args, **kwargs):  # type: ignore[no-untyped-def]
            raise Refusal("no calls here")

    with pytest.raises(Refusal) as caught:
        load(b"Ncm\nf\n)R.", observer=Strict())
    assert caught.value.offset == 7


TWINS: dict[str, tuple[bytes, bytes]] = {
    "proto-misplaced": (b"\x80\x02\x80\x02N.", b"\x80\x02N."),
    "proto-missing": (b"\x8c\x01a.", b"\x80\x04\x8c\x01a."),
    "frame-straddled": (b"\x80\x04\x95\x02" + bytes(7) + b"\x8c\x01a.", b"\x80\x04\x95\x04" + bytes(7) + b"\x8c\x01a."),
    "frame-overlap": (
        b"\x80\x04\x95\x0c" + bytes(7) + b"\x95\x01" + bytes(7) + b"NN.",
        b"\x80\x04\x95\x01" + bytes(7) + b"N\x95\x01" + bytes(7) + b".",
    ),
    "frame-unfinished": (b"\x80\x04\x95\x05" + bytes(7) + b"N.NNN", b"\x80\x04\x95\x02" + bytes(7) + b"N.NNN"),
    "memo-overwritten": (b"]q\0}q\0.", b"]q\0}q\1."),
    "memo-sparse": (b"]q\x09.", b"]q\0."),
    "dup": (b"N2.", b"NN."),
    "text-escape": (b"V\\u0041\n.", b"V\\u000a\\u00e9\n."),
    "eight-bit-name": (b"\x80\x04U\x01\xe9U\x01a\x93.", b"\x80\x04\x8c\x02\xc3\xa9U\x01a\x93."),
}


@pytest.mark.parametrize("kind", TWINS)
def test_anomalies_and_ordinary_twins(kind: str) -> None:
    odd, plain = TWINS[kind]
    assert kind in ANOMALIES
    reader = machine(odd)
    reader.load()
    assert kind in [anomaly.kind for anomaly in reader.anomalies]
    reader = machine(plain)
    reader.load()
    assert reader.anomalies == []


def test_a_string_escape_of_a_plain_character_is_an_anomaly() -> None:
    for odd in (b"S'\\x73ystem'\n.", b"S'\\163ystem'\n."):
        reader = machine(odd)
        assert reader.load() == "system"
        assert [anomaly.kind for anomaly in reader.anomalies] == ["text-escape"]
    reader = machine(pickle.dumps(b"\x00\xff'\\\n", 0))
    reader.load()
    assert reader.anomalies == []


def test_frames_that_are_read_differently_are_noticed_before_an_error() -> None:
    reader = machine(b"\x80\x04\x95\x03" + bytes(7) + b"cos\nsystem\n\xff")
    with pytest.raises(Corrupt):
        reader.load()
    assert "frame-straddled" in [anomaly.kind for anomaly in reader.anomalies]


# -- the dicts that are more than dicts


@pytest.mark.parametrize("protocol", range(6))
def test_collections_come_back_as_dicts_and_lists(protocol: int) -> None:
    value = {
        "o": collections.OrderedDict([("b", 1), ("a", 2)]), "d": collections.defaultdict(list, {"k": [1]}),
        "c": collections.Counter("aab"), "q": collections.deque([1, 2], 5), "s": slice(1, None, 2), "r": range(3),
        "z": complex(1, -2), "b": b"\x00\xff", "y": bytearray(b"\xff"), "f": frozenset([1]),
    }  # fmt: skip
    reader = machine(pickle.dumps(value, protocol), table=tensor_table())
    got = reader.load()
    assert isinstance(got, dict)
    assert list(got["o"].items()) == [("b", 1), ("a", 2)]
    assert isinstance(got["o"], Dict)
    assert (got["o"].cls, got["d"].cls, got["c"].cls, got["q"].cls) == (
        "OrderedDict",
        "defaultdict",
        "Counter",
        "deque",
    )
    assert got["d"] == {"k": [1]}
    assert got["c"] == {"a": 2, "b": 1}
    assert list(got["q"]) == [1, 2]
    for key in "srzbyf":
        assert got[key] == value[key]
        assert type(got[key]) is type(value[key])
    assert not reader.unknown


def test_data_classes_of_the_standard_library_are_known_and_opaque() -> None:
    import argparse
    import decimal
    import pathlib
    import uuid

    values = [argparse.Namespace(a=1), pathlib.PurePosixPath("a/b"), datetime.datetime(2020, 1, 1), uuid.UUID(int=5),
              decimal.Decimal("1.5"), datetime.timedelta(1)]  # fmt: skip
    for protocol in range(6):
        reader = machine(pickle.dumps(values, protocol), table=tensor_table())
        got = reader.load()
        assert isinstance(got, list)
        assert all(isinstance(item, Opaque) for item in got)
        assert not reader.unknown
        assert got[0].attrs == {"a": 1}


def test_nothing_is_imported_or_called(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    def forbidden(*args: object, **kwargs: object) -> object:
        raise AssertionError("the machine imported something")

    data = b"\x80\x02cos\nsystem\nU\x02ls\x85R0cantigravity\nx\n0(inet\nC\n0c__builtin__\neval\nU\x01x\x85R."
    reader = machine(data, table=tensor_table())
    monkeypatch.setattr(builtins, "__import__", forbidden)
    value = reader.load()
    monkeypatch.undo()
    assert isinstance(value, Opaque)
    assert value.full == "builtins.eval"
