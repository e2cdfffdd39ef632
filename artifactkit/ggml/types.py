"""Which of ggml's quantised types there are, which tensors can be had in them, and the library that computes them."""

from __future__ import annotations

import re
from typing import Any

from ..artifact import TensorView
from ..dtypes import BLOCKS, BY_NAME, DType
from ..errors import MissingExtra, UsageError

EXTRA = "gguf"
F32 = BY_NAME["f32"]
# Types of intermediate results, which ggml reads nowhere as weights.
INTERNAL = frozenset({"q8_1", "q8_k"})
# By lower names, without the two above.
TYPES: dict[str, DType] = {d.name: d for d in BLOCKS if d.name not in INTERNAL}
# llama.cpp's own rule (llama-quant.cpp, tensor_requires_imatrix); for three of them ggml aborts the process.
NEEDS_IMATRIX = frozenset({"iq1_m", "iq1_s", "iq2_s", "iq2_xs", "iq2_xxs"})


def library() -> Any:
    """The module ``libgguf``; MissingExtra when it is not installed."""
    try:
        import libgguf
    except ImportError as error:
        raise MissingExtra(
            "ggml's quantised types need the package libgguf", expected="the extra `gguf`",
            hint="pip install 'artifactkit[gguf]'",
        ) from error  # fmt: skip
    return libgguf


def parse(text: str) -> DType:
    """The quantised type called ``text``, in any case; UsageError with the names when there is none."""
    found = TYPES.get(text.strip().lower().replace("-", "_"))
    if found is None:
        raise UsageError(f"unknown quantised type {text!r}", hint=f"one of {', '.join(TYPES)}")
    return found


def fits(shape: tuple[int, ...], dtype: DType) -> bool:
    """Whether rows of ``shape`` are whole blocks of ``dtype``."""
    return bool(shape) and shape[-1] % dtype.block == 0 and 0 not in shape


# Matrices that llama.cpp reads as f32 only (llama-quant.cpp, tensor_allows_quantization; conversion/base.py).
_FLOAT32 = re.compile(
    r"_norm\.weight$|ffn_gate_inp\.weight$|ffn_gate_inp_shexp\.weight$|altup|laurel|per_layer_model_proj"
    r"|^position_embd\.weight$|^token_types\.weight$|ssm_conv1d|shortconv\.conv\.weight$"
    r"|time_mix_(first|w0|w1|w2|v0|v1|v2|a0|a1|a2|g1|g2|decay_w1|decay_w2|lerp_fused)\.weight$"
    r"|attn_rel_b\.weight$|\.position_embd|sam\.pos_embd|sam\.neck\.|sam\.net_|\.rel_pos"
)


def float32_name(name: str, dimensions: int) -> bool:
    """Whether llama.cpp takes the tensor ``name`` in f32 and in nothing else: vectors, norms, and a few matrices."""
    return dimensions < 2 or _FLOAT32.search(name) is not None


def float32_only(tensor: TensorView) -> bool:
    """:func:`float32_name` of a tensor of floats."""
    return tensor.dtype.cls == "float" and float32_name(tensor.name, len(tensor.shape))
