"""Token ids as runtimes take them that know no padding: row by row, each as long as its mask says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import UsageError


def rows(inputs: Mapping[str, Any], tokens: int, runtime: str) -> tuple[Any, list[int]]:
    """(ids, length of each row) of the inputs. UsageError for those that ``runtime`` cannot be given."""
    import numpy as np

    unknown = sorted(set(inputs) - {"input_ids", "attention_mask", "position_ids", "token_type_ids"})
    if unknown or "input_ids" not in inputs:
        raise UsageError(f"{runtime} takes token ids", expected="input_ids, attention_mask", found=", ".join(inputs))
    ids = np.asarray(inputs["input_ids"])
    mask = np.asarray(inputs.get("attention_mask", np.ones_like(ids)))
    if ids.ndim != 2 or 0 in ids.shape or ids.dtype.kind not in "iu" or mask.shape != ids.shape:
        raise UsageError(
            "input_ids and attention_mask are whole numbers of one shape (batch, length)",
            found=f"{ids.dtype} {ids.shape}, {mask.dtype} {mask.shape}",
        )
    lengths = [int(n) for n in (mask != 0).sum(1)]
    if not np.array_equal(mask != 0, np.arange(ids.shape[1]) < np.array(lengths)[:, None]):
        raise UsageError("the mask is not right-padded: ones, then zeros, in each row")
    if not np.array_equal(inputs.get("token_type_ids", 0) * (mask != 0), 0 * mask):
        raise UsageError(f"{runtime} gives every token the type 0")
    positions = np.arange(ids.shape[1]) * (mask != 0)
    if not np.array_equal(inputs.get("position_ids", positions) * (mask != 0), positions):
        raise UsageError(f"{runtime} counts positions from 0 on")
    real = ids[mask != 0]
    if real.size and not (int(real.min()) >= 0 and int(real.max()) < tokens):
        raise UsageError("no such token", expected=f"0 to {tokens - 1}", found=f"{real.min()} to {real.max()}")
    return ids, lengths
