"""What a GGUF file says of itself: which type most of it has, and by which version of the types."""

from __future__ import annotations

from dataclasses import replace

from ..artifact import KeyValue, Weights

QUANTIZATION_VERSION = 2  # GGML_QNT_VERSION
# llama.h, enum llama_ftype: the number of a file that is mostly of this type. k-quants: their plain "medium" recipes'.
FILE_TYPES = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "q2_k": 10, "q3_k": 12, "q4_k": 15,
    "q5_k": 17, "q6_k": 18, "iq2_xxs": 19, "iq2_xs": 20, "iq3_xxs": 23, "iq1_s": 24, "iq4_nl": 25, "iq3_s": 26,
    "iq2_s": 28, "iq4_xs": 30, "iq1_m": 31, "bf16": 32, "tq1_0": 36, "tq2_0": 37, "mxfp4": 38,
}  # fmt: skip
FILE_TYPE, VERSION_KEY = "general.file_type", "general.quantization_version"


def with_file_type(weights: Weights, file_type: int | None = None) -> Weights:
    """``weights`` with the pairs that say how it is quantised: those of llama-quantize, where a type was changed.

    ``file_type`` is given by a recipe; else it is that of the type that most elements of matrices have. Weights without
    pairs stay as they are.
    """
    changed = any(s.outcome in ("quantised", "dequantised", "cast") for t in weights for s in t.steps)
    made = weights.format != "gguf"  # not read from a file that says so already
    if not weights.keyvalues or not (made or changed or file_type is not None):
        return weights
    counts: dict[str, int] = {}
    for tensor in weights:
        if len(tensor.shape) > 1:
            counts[tensor.dtype.name] = counts.get(tensor.dtype.name, 0) + tensor.numel
    most = max(sorted(counts), key=lambda name: counts[name], default="f32")
    pairs = {pair.key: pair for pair in weights.keyvalues}
    number = FILE_TYPES.get(most) if file_type is None else file_type
    if number is not None:
        pairs[FILE_TYPE] = KeyValue(FILE_TYPE, "u32", number)
    else:
        pairs.pop(FILE_TYPE, None)
    if made or any(tensor.dtype.block > 1 for tensor in weights):  # llama.cpp's converter always writes it
        pairs[VERSION_KEY] = KeyValue(VERSION_KEY, "u32", QUANTIZATION_VERSION)
    else:
        pairs.pop(VERSION_KEY, None)
    return replace(weights, keyvalues=tuple(pairs.values()))
