"""Row shapes that mixtures of experts need beside the stacked matrices."""

from __future__ import annotations

from .ops import Reshape

# A gate of one row, [1, width], is a vector for llama.cpp.
FLAT = Reshape((-1,), (1, -1), "one row as a vector")
