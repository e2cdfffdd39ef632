"""Sizes as arguments of names that are data: the loader takes the memory, or the time, before it reads one element."""

from __future__ import annotations

import re

MAX_ELEMENTS = 1 << 28  # that a call may ask for; picklers ask for none, and fill in what is there
SHAPED = {"ndarray": 0, "recarray": 0, "_reconstruct": 1}  # name -> which argument is a shape
HUGE_POWER = re.compile(r"[eE][+-]?[\d_]{6,}")


def asked(module: str, name: str, args: tuple[object, ...]) -> str | None:
    """What is out of proportion in a call of ``module.name``; None for ordinary sizes."""
    if name == "Fraction":
        huge = any(isinstance(arg, str) and HUGE_POWER.search(arg) for arg in args)
        return "fractions.Fraction is given a power of ten that takes minutes to compute" if huge else None
    if name == "range":
        args = (max((n for n in args if isinstance(n, int)), default=0),)
    elif name in SHAPED:
        args = args[SHAPED[name] : SHAPED[name] + 1]
    elif not name.endswith(("Tensor", "Storage")):
        return None
    count = 1
    for arg in args:
        for number in arg if isinstance(arg, tuple | list) and len(arg) <= 64 else (arg,):
            if type(number) is int and number > 1:
                count *= number
                if count > MAX_ELEMENTS:
                    return f"{module}.{name} asks for memory for {count} elements or more"
    return None
