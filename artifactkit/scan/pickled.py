"""Pickles: interpreted opcode by opcode with a real stack and memo, every name and call judged as it happens.

One stream may hold several pickles, raw storages after them (torch before 1.6), arrays between opcodes (joblib), and
other pickles as bytes within. Text opcodes may begin any file, so bytes count as a pickle by how far they can be read.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterator

from ..containers.torch_legacy import MAGIC_NUMBER, PROTOCOL_VERSION, storage_layout
from ..errors import ArtifactkitError, LimitExceeded, Truncated
from ..files import Bytes, Memory, part
from ..pickles import Limits, Machine, Payload
from . import detect
from .pickle_danger import reason
from .pickle_judge import Judge
from .pickle_rules import DISAGREE, MALFORMED, RULES, TRAILING, UNSAFE
from .piece import Budget, Piece
from .rules import LIMIT, UNREADABLE

__all__ = ["RULES", "Run", "report", "run_of", "scan"]

LIMITS = Limits(memory=128 << 20, work=1 << 18)
MAX_PICKLES = 20_000  # in one stream
# Names under which a file can only be meant as a pickle, if it is no other format.
SUFFIXES = (".pkl", ".pickle", ".joblib")
# And where only bytes that are no text can be meant so: a .pth is a list of paths too.
BINARY_SUFFIXES = (".pt", ".pth", ".ckpt")
BLANK = b"\0 \t\r\n"
SWEEP = 16 << 20  # bytes behind an error that are searched for names
PUSHES = 200_000  # and pushed words among them: each costs a microsecond
# A line that may end in a module's name, and the name on the next. Taken from where its letters begin, so that a long
# run of them is passed over once.
LINES = re.compile(rb"(?<![\w.])([\w.]++)\n(?=([A-Za-z_][\w.]{0,200})\n)")
MODULE = re.compile(rb"(?<=[ci])[A-Za-z_][\w.]{0,200}\Z")
OPENINGS = 16  # letters c and i in such a line that are taken for the opcode
PUSHED = re.compile(
    rb"(?:\x8c(.)|X(.)\0\0\0|U(.)|\x8d(.)\0{7}|T(.)\0\0\0)([A-Za-z_][\w.]{0,100})", re.DOTALL
)  # fmt: skip
BASE64 = re.compile(rb"[A-Za-z0-9+/_\-\s]{8,}={0,2}\s*")
HEX = re.compile(rb"(?:[0-9a-fA-F]{2}){4,}")
# First bytes of the formats that are looked for in bytes within: most are none of them.
MARKS = frozenset(detect.FIRST_OPCODES) | frozenset(b"P\x1f\xfdB]x")
INNER = frozenset({"pickle", "zip", "tar", "gzip", "bz2", "xz", "lzma", "zlib"})
MAX_INNER = 64 << 20
MAX_LOOSE = 2000  # bytes that no call is given, looked into one by one
SHORT = 256  # bytes: alike ones are looked into once


class Run:
    """One stream of pickles, read to its end. ``judge`` has all that there is to say; nothing is reported yet."""

    def __init__(self, data: Bytes, judge: Judge, budget: Budget, *, member: str | None = None, start: int = 0) -> None:
        self.data, self.judge, self.budget = data, judge, budget
        self.counted = 0  # opcodes that the budget knows of
        self.machine = Machine(
            data, table=judge.table, persistent=lambda pid: judge.persist(pid, self.machine.at), observer=judge,
            member=member, start=start, limits=LIMITS._replace(opcodes=max(budget.opcodes, 1)),
        )  # fmt: skip
        self.machine.tolerant = True
        self.values: list[object] = []  # of the first pickles, for the legacy layout
        self.ends: list[int] = []  # the first ends
        self.done = 0  # pickles read to their STOP
        self.end = start  # of the last of them
        self.error: ArtifactkitError | None = None
        self.extra: list[int] = []  # other places where a reader may go on
        self.legacy = False

    def go(self) -> None:
        """Read pickle after pickle until the end, an error, or raw storages."""
        machine = self.machine
        try:
            while not self.done or not self._blank(machine.position):
                value = machine.load()
                self.done += 1
                self.end = machine.position
                if self.done <= 5:
                    self.values.append(value)
                    self.ends.append(self.end)
                frame_end = machine.frame_end
                if machine.position < frame_end <= self.data.size and len(self.extra) < 16:
                    self.extra.append(frame_end)
                elif self.data.size < frame_end < 1 << 63:
                    self.judge.say(DISAGREE, "a frame reaches past the end of the data: CPython's unpicklers disagree",
                                   self.end)  # fmt: skip
                if self.done == 5 and self._is_legacy():
                    self._storages()
                if self.done > MAX_PICKLES:
                    raise LimitExceeded("too many pickles in one stream", offset=self.end)
        except ArtifactkitError as error:
            self.error = error
        self.budget.opcodes -= machine.opcodes - self.counted
        self.counted = machine.opcodes
        self.judge.finish()

    def _blank(self, at: int) -> bool:
        """Whether nothing but padding follows."""
        size = self.data.size
        if at >= size:
            return True
        if self.data.read(at, 1) not in (b"\0", b" ", b"\t", b"\r", b"\n"):
            return False
        while at < size:
            if self.data.read(at, min(1 << 20, size - at)).strip(BLANK):
                return False
            at += 1 << 20
        return True

    def _is_legacy(self) -> bool:
        magic, version = self.values[:2]
        keys = self.values[4]
        return (
            type(magic) is int and magic == MAGIC_NUMBER and version == PROTOCOL_VERSION and isinstance(keys, list)
        )  # fmt: skip

    def _storages(self) -> None:
        """Pass over the storages of a legacy file: their bytes are data."""
        judge, keys = self.judge, self.values[4]
        assert isinstance(keys, list)
        sizes = dict(judge.order)
        for root, view in judge.views.items():
            sizes.setdefault(root, sizes.get(view, 1))
        names = [str(key) for key in keys]
        places, end = storage_layout(self.data, self.machine.position, names, sizes)
        for key, place in places.items():
            if judge.storages.get(key, 0) > place.nbytes:
                what = f"storage {key} has {place.nbytes} bytes, its tensor says {judge.storages[key]}"
                judge.say(MALFORMED, what, place.offset - 8)
        if judge.sparse:
            from .sparse import wrong

            for found in judge.sparse:
                bad = wrong(found, lambda key: (
                    part(self.data, places[key].offset, places[key].nbytes) if key in places else None))  # fmt: skip
                if bad:
                    judge.say(MALFORMED, f"the indices of a sparse tensor are wrong: {bad}", found.offset)
        self.legacy = True
        self.end = self.machine.position = end


def scan(piece: Piece, kind: str) -> None:
    """Judge the pickles of ``piece``, if it is one."""
    others = [found for found in detect.formats(piece) if found != "pickle"]
    first = piece.first
    member = piece.member
    judge = Judge(container=piece.container)
    run = Run(piece.data, judge, piece.budget, member=member)
    by_name = not others and _named(piece)
    if not piece.size:
        if by_name:
            piece.unreadable(Truncated("the file is empty", expected="a pickle"))
        return
    run.go()
    if not run.done and first[:1] == b"\x80" and first[1:2] > b"\x05":
        _later(piece)
    binary = first[:1] == b"\x80" and first[1:2] <= b"\x05" and len(first) > 1
    if not _is_pickle(run, binary, by_name, others):
        if binary:  # a reader that passes over the opcode which ended it may go on
            _sweep(piece, piece.data, run.machine.at)
        if piece.depth == 0 and "pickle" in piece.report.formats:
            piece.report.formats.remove("pickle")
        return
    if piece.depth == 0 and "pickle" not in piece.report.formats:
        piece.report.formats.append("pickle")
    _report(piece, run, binary)
    for start in run.extra:  # where a reader goes on that takes a frame as a whole
        other = Run(piece.data, Judge(container=piece.container), piece.budget, member=member, start=start)
        other.go()
        if other.done or other.judge.denied:
            _say(piece, other.judge)
    if judge.arrays:  # to an unpickler other than joblib's, the arrays' bytes are opcodes
        plain = Run(piece.data, Judge(plain=True), piece.budget, member=member)
        plain.go()
        plain.judge.said = [entry for entry in plain.judge.said if entry[0] is UNSAFE]
        _say(piece, plain.judge)
    judge.whole = run.error is None and run.done == 1
    _look_inside(piece, judge)


def _later(piece: Piece) -> None:
    """A pickle that declares a protocol of the future: another reader may pass over the number and read on."""
    run = Run(piece.data, Judge(container=piece.container), piece.budget, member=piece.member, start=2)
    run.go()
    if run.judge.listed:
        piece.find(DISAGREE, f"protocol {piece.first[1]} is none that there is, and a pickle follows", offset=0)
        _say(piece, run.judge)


def _named(piece: Piece) -> bool:
    """Whether the name says that this is a pickle, and the bytes do not gainsay it."""
    name = piece.name.lower()
    if name.endswith(SUFFIXES):
        return True
    if not name.endswith(BINARY_SUFFIXES) or not piece.first:
        return False
    try:
        piece.first.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start < len(piece.first) - 3  # a letter cut in two at the end of the head is no such sign
    return b"\0" in piece.first


def _is_pickle(run: Run, binary: bool, by_name: bool, others: list[str]) -> bool:
    judge = run.judge
    if judge.listed or judge.acts:
        return True
    if by_name:
        return True
    if binary:
        # 80 02 may begin anything; a second opcode that is none says so.
        return run.done > 0 or run.machine.opcodes > 2 or isinstance(run.error, Truncated)
    if not run.done:
        return False
    return judge.names > 0 and (run.error is None or run.machine.opcodes > 20)


def _say(piece: Piece, judge: Judge) -> None:
    for rule, what, offset, name, severity in judge.said:
        piece.find(rule, what, offset=offset, name=name, severity=severity)


def run_of(piece: Piece, judge: Judge) -> Run:
    """A run over bytes in which pickles and raw numbers alternate: the caller steps."""
    return Run(piece.data, judge, piece.budget, member=piece.member)


def report(piece: Piece, run: Run) -> None:
    """Say what ``run`` found in bytes that are pickles without doubt, and look into what they carry."""
    _report(piece, run, True)
    _look_inside(piece, run.judge)


def _report(piece: Piece, run: Run, binary: bool) -> None:
    _say(piece, run.judge)
    piece.stored.update(run.judge.storages)
    piece.sparse += run.judge.sparse
    error = run.error
    if error is not None and run.done and not isinstance(error, LimitExceeded):
        if run.legacy or not (run.done >= 4 and run.values and run.values[0] == MAGIC_NUMBER):
            left = piece.size - run.end
            piece.find(TRAILING, f"{left} bytes follow the end of the pickle", offset=run.end)
            error = None
    elif error is not None and not run.done and len(run.judge.said) == 0 and run.machine.opcodes < 2 and not binary:
        error.what = f"this is no pickle, though its name says so: {error.what}"
    if error is not None:
        piece.unreadable(error, LIMIT if isinstance(error, LimitExceeded) else UNREADABLE)
    if run.error is not None:
        _sweep(piece, piece.data, run.machine.at)


def _sweep(piece: Piece, source: Bytes, start: int = 0) -> None:
    """Search what could not be interpreted for names that run code: other readers may get further than CPython."""
    at, size = start, min(source.size, start + SWEEP)
    pushes = 0
    while at < size:
        data = source.read(at, min((1 << 20) + 1024, size - at))
        for line, name in sorted(set(LINES.findall(data))):
            for module in _modules(line):
                _swept(piece, module, name, at, data.find(module + b"\n" + name + b"\n") - 1)
        before = b""
        for match in PUSHED.finditer(data):
            pushes += 1
            if pushes > PUSHES:
                break
            length = next(group for group in match.groups()[:5] if group is not None)[0]
            word = data[match.start(6) : match.start(6) + length]
            if before and b"\x93" in data[match.start(6) + length : match.start(6) + length + 4]:
                _swept(piece, before, word, at, match.start())
            before = word
        at += 1 << 20


def _modules(line: bytes) -> Iterator[bytes]:
    """What ``line`` may name behind a GLOBAL or INST opcode; bytes before the opcode may be letters too."""
    tail = line[-202:]
    openings = [i for i, byte in enumerate(tail) if byte in b"ci"]
    for opening in openings[-OPENINGS:]:
        module = MODULE.match(tail, opening + 1)
        if module:
            yield module[0]


def _swept(piece: Piece, module: bytes, name: bytes, start: int, offset: int) -> None:
    try:
        words = module.decode("ascii"), name.decode("ascii")
    except UnicodeDecodeError:
        return
    from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING

    words = NAME_MAPPING.get(words, (IMPORT_MAPPING.get(words[0], words[0]), words[1]))
    why = reason(*words)
    if why is not None:
        full = ".".join(words)
        piece.find(UNSAFE, f"{full} {why}; it stands behind what cannot be read", offset=start + offset, name=full)


# -- bytes within


def _look_inside(piece: Piece, judge: Judge) -> None:
    """Look into bytes, and text that decodes to bytes, which the pickle hands to a call."""
    seen: set[bytes] = set()
    for data, offset in judge.inside:
        size = data.nbytes if isinstance(data, Payload) else len(data)
        if size < 2:
            continue
        inner: Bytes = part(data.data, data.offset, size) if isinstance(data, Payload) else Memory(data)
        raw = inner.read(0, size) if size <= MAX_INNER else None
        if size <= SHORT and raw is not None:
            if raw in seen:
                continue
            seen.add(raw)
        _look(piece, inner, f"bytes at {offset}")
        if raw is not None:
            _decoded(piece, raw, offset)
    _look_at_loose(piece, judge)
    for text, offset in judge.texts:
        raw = text.encode("latin-1", "replace")
        _look(piece, Memory(raw), f"text at {offset}")
        _decoded(piece, raw, offset)


def _look_at_loose(piece: Piece, judge: Judge) -> None:
    """Look into bytes that no call is given. There may be ever so many."""
    for number, (data, offset) in enumerate(judge.loose):
        if number >= MAX_LOOSE or piece.budget.within <= 0:
            _sweep(piece, piece.data)  # those that run code have to name it, and most stand in the file as they are
            if piece.size > SWEEP:
                piece.find(LIMIT, "too many pieces of bytes within a pickle to look into all of them")
            return
        whole: Bytes = part(data.data, data.offset, data.nbytes) if isinstance(data, Payload) else Memory(data)
        if whole.read(0, 1) not in (b"c", b"("):
            _look(piece, whole, f"bytes at {offset}")
            if judge.whole:
                piece.held.append((offset, whole.size))
            continue
        # Text begins so too: a pickle only if it names what runs code.
        piece.budget.within -= 1
        nested = piece.inner(whole, f"bytes at {offset}", "pickle")
        run = Run(whole, Judge(), piece.budget, member=nested.member)
        run.go()
        if run.judge.listed:
            _say(nested, run.judge)


def _decoded(piece: Piece, text: bytes, offset: int) -> None:
    """Look into what ``text`` encodes, if anything."""
    decoders: tuple[tuple[re.Pattern[bytes], Callable[[bytes], bytes]], ...] = (
        (HEX, binascii.unhexlify), (BASE64, _base64),
    )  # fmt: skip
    for pattern, decode in decoders:
        if pattern.fullmatch(text):
            try:
                found = decode(text)
            except (binascii.Error, ValueError):
                continue
            _look(piece, Memory(found), f"decoded text at {offset}")


def _base64(text: bytes) -> bytes:
    plain = b"".join(text.split()).translate(bytes.maketrans(b"-_", b"+/")).rstrip(b"=")
    return binascii.a2b_base64(plain + b"=" * (-len(plain) % 4))


def _look(piece: Piece, data: Bytes, place: str) -> None:
    """Look into bytes within; when the file has had its share, only for names that run code."""
    inner = piece.inner(data, place, "pickle")
    if not data.size or inner.first[0] not in MARKS and data.size < 22:
        return  # too short for a format that is told by its end, or by a mark further on
    if INNER.intersection(detect.formats(inner)):
        piece.budget.within -= 1
        if piece.budget.within < 0:
            piece.find(LIMIT, "too many pieces of bytes within pickles to look into all of them")
            _sweep(inner, data)
        else:
            piece.look(inner)
