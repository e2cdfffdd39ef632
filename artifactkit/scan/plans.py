"""TensorRT engines: machine code for a device, sometimes for the host; only their own runtime can look into them."""

from __future__ import annotations

from ..containers import plan_header
from ..errors import ArtifactkitError
from ..files import part
from .model import Rule
from .piece import Piece

PLAN = Rule(
    "plan-opaque", "suspicious", "a compiled engine: what it computes cannot be seen",
    "the runtime loads its kernels with the rights of the process; a version-compatible one brings host code as well",
    "build the engine yourself from the ONNX model, on the machine that runs it",
)  # fmt: skip
LIBRARY = Rule(
    "plan-embedded-library", "suspicious", "an engine carries a library of host code",
    "plug-ins, and the lean runtime of version-compatible engines, are loaded into the process "
    "(engine_host_code_allowed)", "load it only where the producer is trusted; leave engine_host_code_allowed off",
)  # fmt: skip
RULES = (PLAN, LIBRARY)

MAX_METADATA = 1 << 20
LISTED = 32


def start_of(piece: Piece) -> int | None:
    """Where the engine begins: at 0, or behind the JSON metadata that ultralytics writes before it."""
    if piece.first[:4] in plan_header.MAGICS:
        return 0
    length = int.from_bytes(piece.first[:4], "little")
    if piece.first[4:5] == b"{" and 2 <= length <= MAX_METADATA and length + 8 <= piece.size:
        return 4 + length if piece.data.read(4 + length, 4) in plan_header.MAGICS else None
    return None


def scan(piece: Piece, kind: str) -> None:
    start = start_of(piece)
    if start is None:
        if kind == "plan-name" and b"\0" in piece.first[:64] and not piece.first.startswith(b"PK"):
            piece.find(PLAN, "named as a compiled engine; its header is none that is known")
        return
    if kind == "plan-name" and start == 0:
        return  # told by content
    data = part(piece.data, start, piece.size - start)
    what = "a TensorRT engine"
    try:
        header = plan_header.read_header(data)
        version = ".".join(str(n) for n in header.version)
        product = "TensorRT-RTX" if header.magic == "vtrt" else "TensorRT"
        chips = f", for {', '.join(header.targets)}" if header.targets else ""
        what = f"a {product} engine, version {version}{chips}"
    finally:
        piece.find(PLAN, what, name=what.partition(",")[0])
        piece.runs(what, "the TensorRT runtime, on the GPU; host code in it, on the CPU", "build it yourself from ONNX")
    count = 0
    for library in plan_header.libraries(data):
        if library.kind == "device":
            continue
        count += 1
        if count <= LISTED:
            place = start + library.offset
            piece.find(LIBRARY, f"a {library.kind} library at byte {place}", offset=place)
    try:
        last = header.sections[-1] if header.sections else None
        if last is not None and last.offset + last.size < data.size and count == 0:
            rest = part(data, last.offset + last.size, data.size - last.offset - last.size)
            piece.look(piece.inner(rest, "(behind the engine)", "plan"))
    except ArtifactkitError as error:
        piece.unreadable(error)
