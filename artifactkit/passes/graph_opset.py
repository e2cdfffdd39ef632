"""``--opset``: the same graph in another version of the standard's operators, by onnx's own converter."""

from __future__ import annotations

from ..artifact import Weights
from ..onnx_files.rewrite import rewritten


def opset(weights: Weights, version: int) -> Weights:
    """The graph with its standard operators as of ``version``; its tensors keep their bytes.

    Constants that the new form of an operator wants are made, and those that it has no use for are dropped. Raises
    RouteRefused where the converter knows no way, MissingExtra without the library.
    """
    assert weights.graph is not None
    if weights.graph.opsets.get("ai.onnx") == version:
        return weights
    before = weights.graph.opsets.get("ai.onnx", "none")
    why = f"opset {before} -> {version}"
    return rewritten(weights, {"op": "opset", "opset": version}, why)[0]
