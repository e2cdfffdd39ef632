"""JSON configuration files of models: what in them makes a loader import code, or read another place.

Which files: config.json and its kin by name (``*config.json``, model_index.json, modules.json, adapter_config.json,
tokenizer.json, ``*.index.json``). Loaders decide by these names too, so other JSON files are data.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

from .. import outside, trees
from ..errors import Corrupt, LimitExceeded
from . import python_names, templates
from .model import Rule, Severity
from .piece import Piece
from .pointers import is_pointer

REMOTE = Rule(
    "config-remote-code",
    "suspicious",
    "a configuration takes code from another repository",
    "with trust_remote_code the loader downloads that repository's code and runs it, whatever it has become by then",
    "load with trust_remote_code=False, or copy the code, pin it and read it",
)
TRUST = Rule(
    "config-trusts-code",
    "suspicious",
    "a configuration switches on the execution of code by itself",
    "a loader that honours it in a nested configuration runs code that the user never agreed to",
    "remove the entry; whether code may run is for the caller to say",
)
TARGET = Rule(
    "config-target",
    "suspicious",
    "a configuration names a callable that is not known to be ordinary",
    "hydra, NeMo and instantiate_from_config import it and call it with the arguments beside it",
    "look at what it is; allow it in a policy by its full name",
)
TARGET_UNSAFE = Rule(
    "config-target-unsafe",
    "malicious",
    "a configuration has a callable run that runs code",
    "hydra, NeMo and instantiate_from_config import it and call it with the arguments beside it",
    "do not load it",
)
IMPORTS = Rule(
    "config-imports",
    "suspicious",
    "a configuration names a module to be imported that is not known to be ordinary",
    "the loader imports the module by that name, and importing runs it",
    "look at what it is; allow it in a policy by its full name",
)
PATH = Rule(
    "config-path",
    "suspicious",
    "a configuration takes a model from a fixed place on the disk",
    "whoever can write to that place decides what is loaded, pickles included",
    "replace the path by the name of the repository, with a pinned revision",
)
INDEX = Rule(
    "index-outside",
    "malicious",
    "an index names a shard outside of its folder",
    "the loader reads that file as weights, a pickle as well",
    "do not load it; shards lie beside their index",
)
REGEX = Rule(
    "tokenizer-regex",
    "suspicious",
    "a tokenizer has a pattern that can take exponential time",
    "a short text can keep the program that tokenizes it busy for years",
    "replace the pattern by one without nested repetition",
)
DUPLICATE = Rule(
    "config-duplicate-key",
    "suspicious",
    "a configuration gives a key that leads to code twice",
    "readers that take the first and readers that take the last see two configurations",
    "keep one of them",
)
RULES = (REMOTE, TRUST, TARGET, TARGET_UNSAFE, IMPORTS, PATH, INDEX, REGEX, DUPLICATE)

MAX_JSON = 24 << 20
MAX_VALUES = 2_000_000  # objects, lists and commas: what a document takes in memory
MAX_DEPTH = 200
CODE_KEYS = frozenset({"auto_map", "_target_", "trust_remote_code", "parent_library", "custom_pipeline", "weight_map",
                       "custom_generate", "custom_pipelines", "chat_template"})  # fmt: skip
KERNEL_KEYS = frozenset({"attn_implementation", "_attn_implementation", "_attn_implementation_internal",
                         "experts_implementation", "_experts_implementation"})  # fmt: skip
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
OWN_CODE = re.compile(r"(?:[A-Za-z_]\w*\.)+[A-Za-z_]\w*")
REGEX_FIELD = re.compile(rb'"Regex"\s*:\s*"((?:[^"\\]|\\.){0,20000})"')


class Object(dict[str, object]):
    """A JSON object; ``twice`` are the keys that came more than once, ``others`` all that was given for them."""

    twice: frozenset[str] = frozenset()
    others: tuple[tuple[str, object], ...] = ()


def _object(pairs: list[tuple[str, object]]) -> Object:
    out = Object(pairs)
    if len(out) < len(pairs):
        seen: set[str] = set()
        out.twice = frozenset(k for k, _ in pairs if k in seen or seen.add(k))  # type: ignore[func-returns-value]
        out.others = tuple((key, value) for key, value in pairs if key in out.twice)
    return out


def load(piece: Piece) -> object:
    """The document; duplicate keys are kept. Raises Corrupt when it is not JSON, LimitExceeded for a bomb."""
    if piece.size > MAX_JSON:
        raise LimitExceeded("a configuration out of proportion", expected=f"{MAX_JSON} bytes", found=piece.size)
    raw = piece.data.read(0, piece.size)
    if raw.count(b"{") + raw.count(b"[") + raw.count(b",") > MAX_VALUES:
        raise LimitExceeded("a configuration of millions of values", expected=f"at most {MAX_VALUES}")
    try:
        return json.loads(raw.decode("utf-8-sig"), object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        raise Corrupt("not UTF-8", offset=error.start) from None
    except ValueError as error:  # JSONDecodeError, and integers of thousands of digits
        raise Corrupt(f"not JSON: {error}", offset=getattr(error, "pos", None)) from None
    except RecursionError:
        raise LimitExceeded("JSON nested too deeply") from None


def scan(piece: Piece, kind: str) -> None:
    name = piece.name.lower()
    if not piece.size or is_pointer(piece.first):
        return
    if name == "tokenizer.json":
        _tokenizer(piece)
    elif name.endswith(".index.json"):
        _index(piece)
    elif name == "modules.json":
        _sentence_modules(piece)
    elif name == "model_index.json":
        document = load(piece)
        _diffusers(piece, document)
        _walk(piece, document)
    elif name.endswith(("config.json", "_config_sentence_transformers.json")) or name in NAMED:
        document = load(piece)
        if name == "adapter_config.json":
            _adapter(piece, document)
        _walk(piece, document)


NAMED = frozenset({"chat_template.json", "config_sentence_transformers.json", "hparams.json", "model_config.json",
                   "params.json", "configuration.json", "sentence_bert_config.json"})  # fmt: skip


def _objects(root: object) -> Iterator[Object]:
    """Every object of the document, in order, those that a duplicate key hides included."""
    waiting: list[object] = [root]
    met: set[int] = set()  # values of a duplicate key lie in two places
    while waiting:
        value = waiting.pop()
        if isinstance(value, Object):
            if id(value) in met:
                continue
            met.add(id(value))
            yield value
            waiting.extend(other for _, other in value.others)
            waiting.extend(reversed(list(value.values())))
        elif isinstance(value, list):
            waiting.extend(reversed(value))


def _walk(piece: Piece, document: object) -> None:
    for one in _objects(document):
        for key in sorted(one.twice & CODE_KEYS):
            piece.find(DUPLICATE, f"the key {key!r} comes twice", name=key)
        for key, value in (*one.items(), *one.others):
            _judge(piece, one, key, value)


def _judge(piece: Piece, holder: Object, key: str, value: object) -> None:
    match key:
        case "auto_map":
            for item in _strings(value):
                _class_reference(piece, item, "auto_map")
        case "custom_pipeline" | "custom_generate":
            for item in _strings(value):
                _custom(piece, key, item)
        case "trust_remote_code":
            if value is True or (isinstance(value, str) and value.lower() in ("true", "1", "yes")):
                piece.find(TRUST, f"{key} is true", name=key)
        case "_target_":
            target(piece, value)
        case "target":
            if isinstance(value, str) and ("params" in holder or "args" in holder or "kwargs" in holder):
                legacy_target(piece, value)
        case "chat_template" | "chat_templates" | "additional_chat_templates":
            _templates(piece, key, value)
        case "parent_library":
            if isinstance(value, str) and not python_names.is_peft_parent(value.strip()):
                _import(piece, value, key)
        case "custom_pipelines":
            _pipelines(piece, value)
        case _:
            if key in KERNEL_KEYS:
                for item in _strings(value):
                    if "/" in item:
                        piece.find(REMOTE, f"{key}: compiled kernels from {item}", name=item)
            elif key.endswith("_class") and isinstance(value, str) and "--" in value:
                _class_reference(piece, value, key)


def _strings(value: object) -> Iterator[str]:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, list):
            waiting.extend(reversed(item))
        elif isinstance(item, dict):
            waiting.extend(reversed(item.values()))


def _class_reference(piece: Piece, value: str, key: str) -> None:
    """``module.Class`` of this repository, or ``owner/name--module.Class`` of another."""
    repository, dashes, own = value.rpartition("--")
    if dashes:
        piece.find(REMOTE, f"{key}: {own} from the repository {repository}", name=value)
        _remote(piece, value)
    elif OWN_CODE.fullmatch(value):
        piece.runs(
            f"{value}: a class in Python code of this repository ({key})",
            "transformers, when it is loaded with trust_remote_code=True",
            "load with trust_remote_code=False; convert the model to an architecture that transformers has",
        )
    else:
        piece.find(REMOTE, f"{key}: {value!r} is no class of a module beside the configuration", name=value)


def _pipelines(piece: Piece, value: object) -> None:
    """transformers' own key: the name of a task -> its class, in ``impl``, and the models that it takes."""
    for task in value.values() if isinstance(value, dict) else ():
        if isinstance(task, dict):
            for item in _strings(task.get("impl")):
                _class_reference(piece, item, "custom_pipelines")


def _remote(piece: Piece, value: str) -> None:
    piece.runs(
        f"{value}: code of another repository",
        "transformers, when it is loaded with trust_remote_code=True; in the state of that day, unless pinned",
        "load with trust_remote_code=False",
    )


def _custom(piece: Piece, key: str, value: str) -> None:
    if REPOSITORY.fullmatch(value) or "--" in value or "://" in value:
        piece.find(REMOTE, f"{key}: code from {value}", name=value)
        _remote(piece, value)
    elif outside.by_name(value).problem:
        piece.find(REMOTE, f"{key}: code from {value}", name=value)
    elif value:
        piece.runs(f"{value}: Python code ({key})", "the loader, when asked to trust it", "do not ask it to")


def target(piece: Piece, value: object) -> None:
    """Judge what a ``_target_`` names."""
    if not isinstance(value, str):
        if value is not None:
            piece.find(TARGET, f"_target_ is no name but {type(value).__name__}")
        return
    name = value.strip()
    if name in python_names.TARGETS:
        return
    if python_names.is_dangerous(name):
        piece.find(TARGET_UNSAFE, f"calls {name[:200]}", name=name)
    else:
        piece.find(TARGET, f"calls {name[:200]}", name=name)
    _called(piece, name)


def _called(piece: Piece, name: str) -> None:
    piece.runs(
        f"{name[:200]}: called by name", "hydra.utils.instantiate and its like", "build the object in your own code"
    )


def legacy_target(piece: Piece, value: str) -> None:
    """``target`` beside ``params``: many files have such keys, so only what runs code is a finding."""
    name = value.strip()
    if name in python_names.TARGETS or not python_names.DOTTED.fullmatch(name):
        return
    if python_names.is_dangerous(name):
        piece.find(TARGET_UNSAFE, f"calls {name[:200]}", name=name)
    _called(piece, name)


def _import(piece: Piece, value: str, key: str) -> None:
    root = value.strip().partition(".")[0]
    severity: Severity = "malicious" if root in python_names.DANGEROUS_ROOTS else "suspicious"
    piece.find(IMPORTS, f"{key}: imports {value[:200]}", name=value, severity=severity)


def _templates(piece: Piece, where: str, value: object, depth: int = 0) -> None:
    """A template; a list of {name, template}; a map of names to templates."""
    if depth > 4:
        raise LimitExceeded("templates nested too deeply")
    if isinstance(value, str):
        templates.judge(piece, value, where)
    elif isinstance(value, list):
        for item in value[:1000]:
            if isinstance(item, dict):
                for key, text in item.items():
                    if key != "name":
                        _templates(piece, f"{where}[{str(item.get('name'))[:40]}]", text, depth + 1)
            else:
                _templates(piece, where, item, depth + 1)
    elif isinstance(value, dict):
        for key, text in list(value.items())[:1000]:
            _templates(piece, f"{where}[{key[:40]}]", text, depth + 1)


def _adapter(piece: Piece, document: object) -> None:
    if not isinstance(document, dict):
        return
    base = document.get("base_model_name_or_path")
    if isinstance(base, str) and base:
        problem = outside.by_name(base).problem
        if problem:
            piece.find(PATH, f"base_model_name_or_path is {problem}: {base[:200]!r}", name=base[:200])


def _diffusers(piece: Piece, document: object) -> None:
    """``"unet": ["diffusers", "UNet2DConditionModel"]``: the library is imported by its name."""
    if not isinstance(document, dict):
        return
    for key, value in document.items():
        if not isinstance(value, list) or len(value) != 2 or not isinstance(value[0], str):
            continue
        library = value[0]
        if library in python_names.DIFFUSERS_LIBRARIES:
            continue
        folder = os.path.dirname(piece.path)
        own = [os.path.join(folder, f"{library}.py"), os.path.join(folder, key, f"{library}.py")]
        if library.isidentifier() and piece.depth == 0 and any(map(trees.is_file, own)):
            piece.runs(
                f"{library}.py: Python code of this repository, for {key}",
                "diffusers, when the pipeline is loaded with trust_remote_code=True",
                "load with trust_remote_code=False",
            )
        else:
            _import(piece, library, key)


def _sentence_modules(piece: Piece) -> None:
    document = load(piece)
    for item in document if isinstance(document, list) else []:
        name = item.get("type") if isinstance(item, dict) else None
        if not isinstance(name, str) or name in python_names.SENTENCE_MODULES:
            continue
        module = name.rpartition(".")[0]
        own = os.path.join(os.path.dirname(piece.path), *module.split(".")) + ".py"
        if "--" in name:
            piece.find(REMOTE, f"type: {name}", name=name)
        elif module and piece.depth == 0 and trees.is_file(own):
            piece.runs(
                f"{name}: a class in Python code of this repository",
                "sentence-transformers, when the model is loaded with trust_remote_code=True",
                "load with trust_remote_code=False",
            )
        else:
            _import(piece, name, "type")
    _walk(piece, document)


def _index(piece: Piece) -> None:
    document = load(piece)
    for one in _objects(document):
        if "weight_map" in one.twice:
            piece.find(DUPLICATE, "the key 'weight_map' comes twice", name="weight_map")
    names: set[str] = set()
    for one in _objects(document):
        for key, value in (*one.items(), *one.others):
            if key in ("weight_map", "weights_map", "shards"):
                names.update(_strings(value))
    for name in sorted(names):
        place = outside.look_at(name, piece.path if piece.depth == 0 else None)
        if place.problem:
            # A plain name may be a link of the user's own making, to a shard on another disk; the index cannot aim it.
            own_link = not outside.by_name(name).problem and not {"/", "\\"} & set(name)
            severity: Severity = "suspicious" if place.mild or own_link else "malicious"
            piece.find(INDEX, f"{place.problem}: {name[:200]!r}", name=name[:200], severity=severity)


def _tokenizer(piece: Piece) -> None:
    """Vocabularies have tens of megabytes: patterns are searched for, the document is not built."""
    from .regexes import is_exponential

    step, keep, at = 4 << 20, 64 << 10, 0
    seen: set[bytes] = set()
    before = b""
    while at < piece.size:
        chunk = piece.data.read(at, min(step, piece.size - at))
        text = before + chunk
        for found in REGEX_FIELD.finditer(text):
            if found[1] in seen or len(seen) > 1000:
                continue
            seen.add(found[1])
            try:
                pattern = json.loads(b'"' + found[1] + b'"')
            except ValueError:
                continue
            if is_exponential(pattern):
                piece.find(REGEX, f"the pattern {pattern[:80]!r}")
        before = text[-keep:]
        at += len(chunk)
    if b'"auto_map"' in piece.first or b'"chat_template"' in piece.first:
        _walk(piece, load(piece))
