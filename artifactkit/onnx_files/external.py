"""External data (docs/ExternalData.md of onnx), by rules of our own: libraries differ in what they let pass.

A relative name, a regular file inside the model's folder with all links followed, of one name only, and a span inside
the file that is as long as the tensor.
"""

from __future__ import annotations

import os

from .. import outside, trees
from ..containers.onnx_wire import Tensor
from ..errors import Corrupt, Refused, Unreadable
from ..files import File
from ..source import FileSpan

KEYS = ("location", "offset", "length")


class Folder:
    """The files beside one model. Each is judged and opened once."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.opened: dict[str, File] = {}

    def span(self, tensor: Tensor, name: str, nbytes: int) -> FileSpan:
        """Where a tensor's ``nbytes`` bytes lie. Raises Corrupt, Refused or Unreadable."""
        pairs = self._pairs(tensor, name)
        location = pairs["location"]
        file = self.opened.get(location) or self._open(tensor, name, location)
        offset = self._number(tensor, name, pairs, "offset", 0)
        length = self._number(tensor, name, pairs, "length", nbytes)
        if length != nbytes:
            raise Corrupt(
                "external data of another length than the tensor", file=self.model, tensor=name, offset=tensor.offset,
                expected=f"{nbytes} bytes", found=f"{length} bytes",
            )  # fmt: skip
        if offset + length > file.size:
            raise Corrupt(
                "external data reaches past the end of its file", file=self.model, tensor=name, offset=tensor.offset,
                expected=f"at most {file.size} bytes, the size of {location}",
                found=f"bytes {offset} to {offset + length}",
            )  # fmt: skip
        return FileSpan(file, offset, nbytes)

    def _pairs(self, tensor: Tensor, name: str) -> dict[str, str]:
        pairs = dict(tensor.external)
        if len(pairs) < len(tensor.external):
            raise Corrupt("a key of external data comes twice", file=self.model, tensor=name, offset=tensor.offset)
        if tensor.location != 1:
            raise Corrupt(
                "external data of a tensor that is said to be in the model", file=self.model, tensor=name,
                offset=tensor.offset, expected="data_location 1 (EXTERNAL)", found=tensor.location,
            )  # fmt: skip
        if not pairs.get("location"):
            raise Corrupt("external data without a location", file=self.model, tensor=name, offset=tensor.offset)
        return pairs

    def _number(self, tensor: Tensor, name: str, pairs: dict[str, str], key: str, default: int) -> int:
        text = pairs.get(key)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) <= 19):
            raise Corrupt(
                f"the {key} of external data is no number", file=self.model, tensor=name, offset=tensor.offset,
                expected="digits", found=text[:40],
            )  # fmt: skip
        return int(text)

    def _open(self, tensor: Tensor, name: str, location: str) -> File:
        place = outside.look_at(location, self.model)
        if place.problem and not place.mild:
            raise Corrupt(
                f"external data outside of the model's folder: {place.problem}", file=self.model, tensor=name,
                offset=tensor.offset, expected="a file beside the model", found=location[:200],
                hint="never trust a model that tries this",
            )  # fmt: skip
        if place.problem:
            raise Corrupt(
                f"external data in {place.problem}", file=self.model, tensor=name, offset=tensor.offset,
                expected="a plain relative name of a regular file", found=location[:200],
            )  # fmt: skip
        if place.size is None:
            raise Unreadable(
                "a file with external data is not there", file=self.model, tensor=name, expected=location[:200],
                hint="a model of several files is moved as a whole folder",
            )  # fmt: skip
        if place.links > 1:
            raise Refused(
                "external data in a file of several names", file=self.model, tensor=name,
                expected="one name, no hard links", found=f"{place.links} names of {location[:200]}",
                hint="a hard link can make a file from elsewhere look as if it lay here; replace it by a copy",
            )  # fmt: skip
        file = trees.open_file(os.path.join(os.path.dirname(self.model), location.replace("\\", "/")))
        self.opened[location] = file
        return file
