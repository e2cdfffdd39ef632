"""What a model is asked: legal inputs by its config, seeded, of several lengths and batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
    import numpy as np

LONGEST = 320  # tokens of the longest input that is made: windows and scaled positions beyond are told as not reached


@dataclass(frozen=True, slots=True)
class Case:
    """One input. ``pieces`` are the lengths in which it is fed with the cache carried over; none: whole."""

    name: str
    inputs: Mapping[str, np.ndarray]
    pieces: tuple[int, ...] = ()

    @property
    def mask(self) -> np.ndarray:
        """Which positions count: (batch, length), true or false."""
        import numpy as np

        ids = self.inputs["input_ids"]
        return np.asarray(self.inputs.get("attention_mask", np.ones_like(ids)) != 0)


def _whole(config: Mapping[str, object], *keys: str) -> int | None:
    for key in keys:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def made(config: Mapping[str, object], causal: bool) -> list[Case]:
    """Inputs for a model of token ids: one token, odd lengths, two rows of unlike length, long ones, cached steps.

    Raises UsageError for a config that does not say how many tokens there are.
    """
    import numpy as np

    tokens = _whole(config, "vocab_size")
    if tokens is None:
        raise UsageError(
            "the config does not say how many tokens there are", expected="vocab_size", hint="--inputs FILE"
        )
    positions = _whole(config, "max_position_embeddings", "n_positions", "n_ctx") or LONGEST
    # RoBERTa's kind counts positions from the padding's id on.
    room = positions - 2 if str(config.get("model_type")) in ("roberta", "xlm-roberta", "camembert") else positions
    rng = np.random.default_rng(20_261)

    def ids(rows: int, length: int) -> np.ndarray:
        low = 3 if tokens > 16 else 0  # the first few are often padding and ends
        return rng.integers(low, tokens, (rows, min(length, room)), dtype=np.int64)

    window = _whole(config, "sliding_window", "local_attention")
    longest = min(room, LONGEST, max(150, (window or 0) + 40))
    cases = [Case("1 x 1", {"input_ids": ids(1, 1)}), Case("1 x 7", {"input_ids": ids(1, 7)})]
    both = ids(2, 33)
    mask = np.ones_like(both)
    mask[1, both.shape[1] * 3 // 5 :] = 0
    cases.append(Case(f"2 x {both.shape[1]}, padded", {"input_ids": both, "attention_mask": mask}))
    cases.append(Case(f"1 x {longest}", {"input_ids": ids(1, longest)}))
    if causal:
        steps = ids(1, 24)
        length = steps.shape[1]
        if length > 4:
            pieces = (length - 4, 2, 1, 1)
            cases.append(Case(f"1 x {length}, in cached steps", {"input_ids": steps}, pieces))
    return cases
