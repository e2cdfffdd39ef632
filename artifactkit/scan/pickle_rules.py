"""The rules for pickles: what each says, why it matters, what to do."""

from __future__ import annotations

from .model import Rule

_RELOAD = "load it only with torch.load(weights_only=True), or convert it to safetensors where you trust its producer"
_REFUSE = "do not load this file with anything; get the weights as safetensors, from a producer you trust"

UNSAFE = Rule(
    "pickle-unsafe-name", "malicious", "the pickle asks for a name that runs code",
    "an unpickler imports the name, and calls it with arguments of the file's choice, before the caller sees anything",
    _REFUSE,
)  # fmt: skip
UNKNOWN = Rule(
    "pickle-unknown-name", "suspicious", "the pickle asks for a name that is not known to be data",
    "importing a module runs its top level, and calling a class or function runs its body: what these do is not in "
    "the file", "load it only where that package is trusted, or allow the exact name in a policy",
)  # fmt: skip
UNKNOWN_CALL = Rule(
    "pickle-unknown-call", "suspicious", "the pickle calls a name that is not known to be data",
    "a constructor or function runs with arguments of the file's choice; most objects are stored without such a call, "
    "by their class and their state", "load it only where that package is trusted with any arguments, or allow the "
    "exact name for this rule in a policy",
)  # fmt: skip
HIDDEN = Rule(
    "pickle-hidden-name", "malicious", "a name is written so that it passes for another",
    "dotted names walk from a trusted module to whatever it has imported; dunder names reach the interpreter's inside; "
    "look-alike letters pass for known ones", _REFUSE,
)  # fmt: skip
COMPUTED = Rule(
    "pickle-computed-name", "malicious", "a name, or what is called, is computed by the file",
    "which code would run is known only by running the file; no pickler writes such names", _REFUSE,
)  # fmt: skip
EXTENSION = Rule(
    "pickle-extension-code", "malicious", "a callable is taken from the copyreg registry of the loading process",
    "the name is not in the file, so nothing can be said about what would be called", _REFUSE,
)  # fmt: skip
BUILD = Rule(
    "pickle-build", "malicious", "the state that an object is given would change how it behaves",
    "a state can plant a method that the next opcode calls, or set attributes of a class, a function or a module",
    _REFUSE,
)  # fmt: skip
PERSISTENT = Rule(
    "pickle-persistent-id", "suspicious", "a persistent id does not describe a storage",
    "the loader is handed a value of the file's choice in the place of a description of tensor bytes", _RELOAD,
)  # fmt: skip
ODD = Rule(
    "pickle-odd", "suspicious", "the pickle holds what no pickler writes",
    "a file put together by hand, as attacks are; scanners that expect picklers' habits can be misled by it", _RELOAD,
)  # fmt: skip
DISAGREE = Rule(
    "pickle-readers-disagree", "malicious", "unpicklers would read different things from the file",
    "what one reader passes over, another one executes", _REFUSE,
)  # fmt: skip
TRAILING = Rule(
    "pickle-trailing-data", "suspicious", "bytes follow the end of the pickle",
    "no known layout has bytes there; another reader may find a second file in them", _RELOAD,
)  # fmt: skip
MALFORMED = Rule(
    "pickle-malformed-tensor", "suspicious", "a tensor is described by values that cannot be right",
    "sizes, strides or indices outside the storage make native code read and write beyond its memory", _RELOAD,
)  # fmt: skip
RULES = (
    UNSAFE, UNKNOWN, UNKNOWN_CALL, HIDDEN, COMPUTED, EXTENSION, BUILD, PERSISTENT, ODD, DISAGREE, TRAILING, MALFORMED,
)  # fmt: skip
