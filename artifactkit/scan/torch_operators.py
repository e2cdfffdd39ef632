"""Operators of torch by namespace: those that come with torch, and those among them that open files or import code.

From the registry of torch 2.13. A namespace that is not in the table needs a library that registers it.
"""

from __future__ import annotations

_STANDARD = """
aten prim prims quantized _quantized quantized_decomposed static_runtime onednn mkldnn mkldnn_prepacked mkl sparse
onnx quantization inductor inductor_prims _inductor_test prepacked xnnpack vulkan vulkan_prepack metal metal_prepack
_c10d_functional _c10d_functional_autograd c10d_functional c10d symm_mem profiler debugprims rngprims export
higher_order cuda _native tensorexpr nvprims _dtensor rnn aoti_torch streams flex_lib
"""
STANDARD = frozenset(_STANDARD.split())
# Of those, what reads or writes a file, or takes a function by its name.
FILES = frozenset({"aten::from_file", "aten::save", "debugprims::load_tensor", "inductor::_load_tensor"})
IMPORTS = frozenset({"export::_call_custom_autograd_function_in_pre_dispatch", "prim::PythonOp"})
# Exact operators of packages beside torch that compute and do nothing else: they need that package's library.
_KNOWN = """
torchvision::nms torchvision::roi_align torchvision::roi_pool torchvision::ps_roi_align torchvision::ps_roi_pool
torchvision::deform_conv2d torchvision::_cuda_version torchvision::_deform_conv2d_backward
torchvision::_roi_align_backward
torchaudio::rnnt_loss torchaudio::forced_align torchaudio::_lfilter_core_loop torchaudio::_lfilter
"""
KNOWN = frozenset(_KNOWN.split())
# Classes behind ``torch.classes``, by namespace, that torch itself registers.
_CLASSES = "quantized xnnpack rnn sparse metal vulkan mkldnn profiler _nnapi backends onednn c10d dist_c10d"
CLASSES = frozenset(_CLASSES.split())


def rule_name(namespace: str, name: str) -> str:
    """``ordinary``, ``known`` (of a package), ``file``, ``import`` or ``custom``."""
    full = f"{namespace}::{name}"
    if full in FILES:
        return "file"
    if full in IMPORTS:
        return "import"
    if namespace in STANDARD:
        return "ordinary"
    return "known" if full in KNOWN else "custom"
