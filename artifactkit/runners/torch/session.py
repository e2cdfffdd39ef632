"""One model of transformers, built from a config and from weights that were read here."""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from ... import __version__
from ...artifact import Weights
from ...errors import RouteRefused, RunFailed, UsageError
from ...placing import Progress, place
from ...safetensors_files import writer
from ...types import RunOptions, WriteOptions

if TYPE_CHECKING:
    import numpy as np

# Keys of config.json that would have transformers load something else than weights and config.
LEFT_OUT = ("auto_map", "quantization_config", "quantization", "_name_or_path", "transformers_version")


class TorchSession:
    """A Session (types.py) on transformers. Outputs are ``logits``, or ``last_hidden_state`` of models without."""

    def __init__(
        self, path: str, weights: Weights, config: Mapping[str, object], device: str, options: RunOptions
    ) -> None:
        import torch
        import transformers

        self._path = path
        self._folder: tempfile.TemporaryDirectory[str] | None = tempfile.TemporaryDirectory(prefix="artifactkit-")
        try:
            self._model = self._build(weights, config, options)
        except BaseException:
            self.close()
            raise
        self._threads = options.threads
        self.facts: dict[str, object] = {
            "runtime": "transformers", "version": f"torch {torch.__version__}, transformers {transformers.__version__}",
            "device": device, "architecture": type(self._model).__name__, "dtype": options.precision,
            "attention": "eager", "threads": options.threads, "artifactkit": __version__,
        }  # fmt: skip

    def _build(self, weights: Weights, config: Mapping[str, object], options: RunOptions) -> Any:
        import torch
        import transformers as untyped

        transformers: Any = untyped
        assert self._folder is not None
        classes = config.get("architectures")
        name = classes[0] if isinstance(classes, list) and classes else None
        found: Any = getattr(transformers, str(name), None) if name else None
        if not (isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)):
            raise RouteRefused(
                "transformers has no model of this class, and code of a checkpoint is not run", file=self._path,
                member="architectures", expected="a class of transformers", found=str(name),
            )  # fmt: skip
        folder = self._folder.name
        entries = {key: value for key, value in config.items() if key not in LEFT_OUT}
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(entries, file)
        weights = replace(weights, metadata={"format": "pt"})
        for output in writer.write(weights, WriteOptions("model", folder=True)):
            place(output, os.path.join(folder, output.name), Progress(), None, output.name)
        dtype = {"float32": torch.float32, "float64": torch.float64}[options.precision]
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        try:
            build: Any = found
            model, told = build.from_pretrained(
                folder, dtype=dtype, attn_implementation="eager", experts_implementation="eager",
                local_files_only=True, trust_remote_code=False,
                output_loading_info=True, use_safetensors=True,
            )  # fmt: skip
        except (ValueError, TypeError, KeyError, AttributeError, RuntimeError, OSError, ImportError) as error:
            raise RunFailed(
                f"transformers does not build the model: {' '.join(str(error).split())[:500]}", file=self._path
            ) from error
        for key in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
            if told.get(key):
                some = sorted(map(str, told[key]))
                raise RunFailed(
                    f"the weights are not those of the model: {key.replace('_', ' ')}", file=self._path,
                    found=", ".join(some[:5]) + (f" and {len(some) - 5} more" if len(some) > 5 else ""),
                )  # fmt: skip
        return model.eval()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free it; twice does no harm."""
        self._model = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def run(self, inputs: Mapping[str, np.ndarray], pieces: Sequence[int] = ()) -> dict[str, np.ndarray]:
        """Session.run. At masked positions outputs are what the model computes there."""
        import numpy as np
        import torch

        if self._model is None:
            raise RunFailed("the session has ended", file=self._path)
        given = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in inputs.items()}
        ids = inputs.get("input_ids")
        if pieces and (ids is None or any(p < 1 for p in pieces) or sum(pieces) != ids.shape[1]):
            raise UsageError("the pieces are no cut of the inputs", found=list(pieces))
        before = torch.get_num_threads()
        torch.set_num_threads(self._threads)
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of names that older models still have
                return self._cut(given, pieces) if len(pieces) > 1 else self._named(self._model(**given))
        except (ValueError, TypeError, IndexError, RuntimeError) as error:
            raise RunFailed(
                f"transformers does not run the inputs: {' '.join(str(error).split())[:500]}", file=self._path
            ) from error
        finally:
            torch.set_num_threads(before)

    def _cut(self, given: dict[str, Any], pieces: Sequence[int]) -> dict[str, np.ndarray]:
        import numpy as np

        found: dict[str, list[np.ndarray]] = {}
        cache, start = None, 0
        mask = given.get("attention_mask")
        for piece in pieces:
            end = start + piece
            part = {"input_ids": given["input_ids"][:, start:end]}
            if mask is not None:
                part["attention_mask"] = mask[:, :end]
            out = self._model(**part, past_key_values=cache, use_cache=True)
            cache, start = out.past_key_values, end
            for name, value in self._named(out).items():
                found.setdefault(name, []).append(value)
        return {name: np.concatenate(values, axis=1) for name, values in found.items()}

    @staticmethod
    def _named(out: Any) -> dict[str, np.ndarray]:
        name = "logits" if getattr(out, "logits", None) is not None else "last_hidden_state"
        value: np.ndarray = getattr(out, name).numpy()
        return {name: value}
