"""In the child process: a model of another opset, by onnx's version converter."""

from __future__ import annotations

from typing import Any

from ..children.server import Failed

STANDARD = ("", "ai.onnx")


def _refuse_slopes(model: Any, before: int, after: int) -> None:
    """PRelu's slope lay along the channels before opset 7, and lies along the last dimension since."""
    if not (before < 7 <= after or after < 7 <= before):
        return
    single = {t.name for t in model.graph.initializer if all(n == 1 for n in t.dims)}
    for node in model.graph.node:
        if node.op_type == "PRelu" and node.domain in STANDARD and node.input[1] not in single:
            raise Failed(
                "onnx's version converter gets PRelu with a slope for each channel wrong", "refused",
                found=f"node {node.name or node.output[0]}, opset {before} -> {after}", hint="export the model again",
            )  # fmt: skip


def convert_opset(model: Any, opset: int) -> Any:
    """The model with its standard operators as of ``opset``. What else it says stays as it was."""
    import onnx
    from onnx import helper, version_converter

    newest = onnx.defs.onnx_opset_version()
    if not 1 <= opset <= newest:
        raise Failed(
            f"there is no opset {opset}", "usage", expected=f"1 to {newest}", hint="a newer onnx knows newer ones"
        )
    now = [pair.version for pair in model.opset_import if pair.domain in STANDARD]
    if not now:
        raise Failed("the model uses no standard operators, so it has no opset to convert", "refused")
    if model.functions:
        raise Failed(
            "the model defines operators of its own, which onnx's converter leaves as they are", "refused",
            found=", ".join(sorted({f"{f.domain}::{f.name}" for f in model.functions})[:5]),
        )  # fmt: skip
    if now[0] == opset:
        return model
    _refuse_slopes(model, now[0], opset)
    try:
        made = version_converter.convert_version(model, opset)
    except (RuntimeError, ValueError, onnx.checker.ValidationError, version_converter.ConvertError) as error:
        raise Failed(
            f"onnx's version converter does not lead from opset {now[0]} to {opset}", "refused",
            found=str(error).strip().splitlines()[-1][:300] if str(error).strip() else type(error).__name__,
            hint="a nearer opset may do; else export the model again with --opset",
        ) from error  # fmt: skip
    other = [pair for pair in model.opset_import if pair.domain not in STANDARD]
    missing = {pair.domain for pair in other} - {pair.domain for pair in made.opset_import}
    made.opset_import.extend(pair for pair in other if pair.domain in missing)
    made.ir_version = max(model.ir_version, helper.find_min_ir_version_for(list(made.opset_import), True))
    for field in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        made.ClearField(field)
        if model.HasField(field):
            setattr(made, field, getattr(model, field))
    del made.metadata_props[:]
    made.metadata_props.extend(model.metadata_props)
    return made
