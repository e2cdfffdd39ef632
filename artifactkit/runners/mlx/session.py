"""What is asked of an MLX folder in mlx-lm: logits of token ids."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

from ...children import Json
from ...children.client import Child
from ...errors import RunFailed, UsageError
from ...token_inputs import rows
from ...types import RunOptions

if TYPE_CHECKING:
    import numpy as np

WIDTH_LIMIT = 1 << 24  # outputs a position: no vocabulary is near it


class MlxSession:
    """A Session (types.py) on mlx-lm. Rows are run one by one, each as long as its mask says; other outputs are NaN.

    mlx takes the threads that it wants on a CPU: ``RunOptions.threads`` says nothing to it.
    """

    def __init__(self, folder: str, device: str, backend: str, options: RunOptions) -> None:
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "child.py")
        self._child = Child(script, "mlx-lm", folder, unset=("MLX_", "MLXLM_", "HF_"))
        self._seconds = options.seconds
        request: Json = {
            "op": "load", "path": os.fsencode(os.path.abspath(folder)).decode("latin-1"), "device": backend,
        }  # fmt: skip
        try:
            loaded, _ = self._child.ask(request, options.seconds)
        except BaseException:
            self._child.close()
            raise
        self._tokens = int(loaded["tokens"])
        quantised = loaded["quantization"]
        self.facts: dict[str, object] = {
            "runtime": "mlx-lm", "version": f"mlx {loaded['mlx']}, mlx-lm {loaded['mlx_lm']}", "device": device,
            "architecture": loaded["model_type"], "types": ", ".join(loaded["types"]),
            "quantization": ", ".join(f"{k} {v}" for k, v in sorted(quantised.items())) if quantised else "none",
        }  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Of the child process."""
        return self._child.pid

    def close(self) -> None:
        """Ends the child process; twice does no harm."""
        self._child.close()

    def run(self, inputs: Mapping[str, np.ndarray], pieces: Sequence[int] = ()) -> dict[str, np.ndarray]:
        """Session.run: ``logits``, float32."""
        import numpy as np

        ids, lengths = rows(inputs, self._tokens, "mlx-lm")
        if pieces and (any(p < 1 for p in pieces) or sum(pieces) != ids.shape[1]):
            raise UsageError("the pieces are no cut of the inputs", expected=ids.shape[1], found=list(pieces))
        found: list[np.ndarray] = []
        expected = [0] * len(lengths)

        def place(head: Json, nbytes: int) -> memoryview:
            row, start, count, width = (int(head[key]) for key in ("row", "start", "count", "width"))
            known = 0 <= row < len(lengths) and start == expected[row] and 0 < count <= lengths[row] - start
            if not known or not 0 < width <= WIDTH_LIMIT or nbytes != 4 * count * width:
                raise RunFailed("the child answers what was not asked", file=self._child.file, found=str(head)[:200])
            if not found:
                found.append(np.full((*ids.shape, width), np.nan, np.float32))
            if found[0].shape[-1] != width:
                raise RunFailed("the child's outputs change their width", file=self._child.file, found=str(width))
            expected[row] += count
            return found[0][row, start : start + count].reshape(-1).view(np.uint8).data

        request = {
            "op": "run", "rows": [ids[i, :n].tolist() for i, n in enumerate(lengths)], "pieces": list(pieces),
            "length": int(ids.shape[1]),
        }  # fmt: skip
        done, _ = self._child.ask(request, self._seconds, place=place)
        if expected != lengths:
            raise RunFailed("the child left outputs out", file=self._child.file, found=str(expected))
        self.facts["calls"] = done["calls"]
        return {"logits": found[0] if found else np.full((*ids.shape, 0), np.nan, np.float32)}
