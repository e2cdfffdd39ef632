"""Names as text: dunders that a state must not set, and letters that pass for others."""

from __future__ import annotations

from .pickle_danger import reason
from .pickle_names import SAFE, TRUSTED

# Special methods that pickle, copy, or ordinary use of an object looks up, and attributes that lead to code.
_EXECUTING = (
    "setstate reduce reduce_ex getstate getnewargs getnewargs_ex call class getattr getattribute setattr delattr del "
    "init new init_subclass subclasshook iter next getitem setitem delitem contains len hash eq ne lt le gt ge bool "
    "repr str bytes format enter exit aenter aexit await get set delete set_name instancecheck subclasscheck dir "
    "missing copy deepcopy array array_interface array_struct array_wrap array_finalize array_ufunc array_function "
    "torch_function torch_dispatch int float index complex add radd sub mul matmul truediv floordiv mod pow and or xor "
    "globals code closure builtins defaults kwdefaults wrapped self func import loader spec path file bases mro "
    "subclasses base metaclass prepare fspath length_hint reversed round trunc floor ceil sizeof buffer"
)
EXECUTING = frozenset(f"__{word}__" for word in _EXECUTING.split())
# Letters of other scripts that are drawn like Latin ones, lower case; compatibility forms are folded by Unicode itself.
CONFUSABLE = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0455\u0456\u0458\u04bb\u0501\u051b\u051d\u0432\u043a\u043c\u043d\u0442"
    "\u03bf\u03b1\u03c1\u03c5\u03bd\u03b9\u03ba\u03c4\u0131\u0261\u0251\u1d0f\u2010\u2011\u2024\uff0e\u04cf\u0261\u0442",
    "aeopcyxsijhdqwbkmhtoapuviktigao--..lgt",
)
INVISIBLE = dict.fromkeys((0xAD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF, 0x202A, 0x202B, 0x202C, 0x202D, 0x202E))


def is_dunder(name: str) -> bool:
    return len(name) > 4 and name.startswith("__") and name.endswith("__")


def looks_like(full: str) -> str | None:
    """The known name that ``full``, which has letters beyond ASCII, is drawn like; None for none."""
    import unicodedata

    folded = unicodedata.normalize("NFKD", full).translate(INVISIBLE).translate(CONFUSABLE)
    folded = "".join(c for c in folded if not unicodedata.combining(c))
    if folded == full or not folded.isascii():
        return None
    at = folded.rfind(".")
    while at > 0:
        module, name = folded[:at], folded[at + 1 :]
        if (module, name) in SAFE or module in TRUSTED or reason(module, name) is not None:
            return folded
        at = folded.rfind(".", 0, at)
    return None
