"""ggml's quantised types: which can be had from what, and sources that quantise and dequantise as they are read.

The arithmetic is ggml's own code, by way of libgguf.
"""

from __future__ import annotations

from .blocks import as_f32, dequantize, dequantized
from .file_type import with_file_type
from .quantized import Quantization, Quantized, check, cores, imatrix_for, quantized
from .types import F32, INTERNAL, NEEDS_IMATRIX, TYPES, fits, float32_name, float32_only, library, parse

__all__ = [
    "F32", "INTERNAL", "NEEDS_IMATRIX", "TYPES", "Quantization", "Quantized", "as_f32", "check", "cores", "dequantize",
    "dequantized", "fits", "float32_name", "float32_only", "imatrix_for", "library", "parse", "quantized",
    "with_file_type",
]  # fmt: skip
