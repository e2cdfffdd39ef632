"""mlx-lm behind two pipes. Runs in a process of its own, which ``child.py`` starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...children import Json, server
from ...children.server import Failed

OUTPUT_BYTES = 128 << 20  # of logits that one call may give


class Runtime:
    """One loaded folder, and the requests that it answers."""

    def __init__(self) -> None:
        self.model: Any = None

    def answer(self, asked: Json, payload: bytes) -> Iterator[tuple[Json, Any]]:
        if asked["op"] == "load":
            yield self.load(asked), b""
        elif self.model is None:
            raise Failed("nothing is loaded")
        else:
            yield from self.run(asked["rows"], asked["pieces"], asked["length"])

    def load(self, asked: Json) -> Json:
        import mlx.core as mx

        if asked["device"] == "gpu" and not mx.metal.is_available():
            raise Failed("mlx has no Metal device here", "device", expected="an Apple GPU", hint="--device cpu")
        mx.set_default_device(mx.cpu if asked["device"] == "cpu" else mx.gpu)
        from importlib.metadata import version

        from mlx.utils import tree_flatten
        from mlx_lm.utils import load_model

        folder = Path(os.fsdecode(asked["path"].encode("latin-1")))
        try:
            # Strict: a tensor too many or too few is an error. The folder's own code is not run.
            self.model, config = load_model(folder, strict=True, trust_remote_code=False)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RuntimeError, OSError) as error:
            raise Failed(f"mlx-lm does not load the folder: {said(error)}") from error
        parameters: Any = tree_flatten(self.model.parameters())
        kinds = sorted({str(array.dtype).removeprefix("mlx.core.") for _, array in parameters})
        quantised = config.get("quantization")
        return {
            "done": True, "mlx": version("mlx"), "mlx_lm": version("mlx-lm"), "types": kinds,
            "model_type": str(config.get("model_type")), "tokens": int(config.get("vocab_size") or 0),
            "quantization": {k: v for k, v in quantised.items() if not isinstance(v, dict)} if quantised else None,
        }  # fmt: skip

    def run(self, rows: list[list[int]], pieces: list[int], length: int) -> Iterator[tuple[Json, Any]]:
        """Frames of logits: floats of ``count`` positions of one row, in order."""
        import mlx.core as mx
        from mlx_lm.models.cache import make_prompt_cache

        calls, width = 0, 0
        for number, ids in enumerate(rows):
            cache = make_prompt_cache(self.model) if pieces else None
            start = 0
            for piece in pieces or [length]:
                part = ids[start : start + piece]
                if not part:
                    break
                try:
                    logits = self.model(mx.array([part]), cache=cache)[0].astype(mx.float32)
                    mx.eval(logits)
                except (ValueError, TypeError, IndexError, RuntimeError) as error:
                    raise Failed(f"mlx-lm does not run the tokens: {said(error)}") from error
                calls, width = calls + 1, int(logits.shape[-1])
                step = max(1, OUTPUT_BYTES // (4 * width))
                for at in range(0, len(part), step):
                    count = min(step, len(part) - at)
                    head = {"row": number, "start": start + at, "count": count, "width": width}
                    yield head, memoryview(logits[at : at + count])
                start += len(part)
        yield {"done": True, "calls": calls, "width": width}, b""


def said(error: Exception) -> str:
    return " ".join(str(error).split())[:500] or type(error).__name__


def main() -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"  # a path that is none would be taken for a name on the hub
    server.main(Runtime().answer)
