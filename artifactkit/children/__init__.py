"""Child processes for code that is not ours to trust with our own: native runtimes, and libraries that trace models.

A child answers requests on its stdin, one after the other, and is gone with whoever started it. ``Child`` is the side
that asks, ``server`` the side that answers. A frame is ``<IQ`` (bytes of JSON, bytes of payload), then both. The answer
to a request is any number of frames with a payload, and a last one, which has ``done`` or ``error`` in its JSON.
"""

from __future__ import annotations

import struct
from typing import Any

Json = dict[str, Any]
FRAME = struct.Struct("<IQ")
JSON_LIMIT = 64 << 20  # bytes of a frame's JSON
PAYLOAD_LIMIT = 1 << 30  # and of a payload that is not written to a given place
