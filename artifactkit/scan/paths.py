"""Names of members as paths: would unpacking, or following them, leave the folder?"""

from __future__ import annotations

import re

DRIVE = re.compile(r"[A-Za-z]:")


def unsafe_path(name: str) -> bool:
    """Whether ``name`` is absolute, has a drive, or climbs out of the folder, on any system."""
    if "\0" in name:
        name = name.partition("\0")[0]
    path = name.replace("\\", "/")
    if path.startswith(("/", "~")) or DRIVE.match(path):
        return True
    depth = 0
    for part in path.split("/"):
        if part == "..":
            depth -= 1
        elif part not in ("", "."):
            depth += 1
        if depth < 0:
            return True
    return False
