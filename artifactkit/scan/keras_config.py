"""Keras models as JSON: config.json of a .keras archive, model_config of an HDF5 file, metadata of a SavedModel.

Loading builds each object by the names that the document gives: a module, a class, a registered name. Some classes
carry code (Lambda), load another model (TFSMLayer) or unpickle (TorchModuleWrapper); a name outside of Keras is
imported. Source: keras/src/saving/serialization_lib.py and keras/src/legacy/saving/serialization.py.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Iterator

from .. import outside
from ..errors import ArtifactkitError
from ..files import Memory
from . import configs, keras_names, python_names, savedmodel_ops
from .model import Rule, Severity
from .piece import Piece

_SAFE = "load the weights only, into a model that your own code builds; keep safe_mode on"
LAMBDA = Rule(
    "keras-lambda", "malicious", "a Keras model carries Python code",
    "the bytes are a marshalled code object: loading unpacks it, calling the model runs it", _SAFE,
)  # fmt: skip
FUNCTION = Rule(
    "keras-function", "suspicious", "a Keras model asks for a function that is none of Keras's",
    "the loader takes it from the module that the file names, or from what the caller has registered", _SAFE,
)  # fmt: skip
CLASS = Rule(
    "keras-class", "suspicious", "a Keras model asks for a class that is none of Keras's",
    "the loader imports the module, or takes the class that the caller has registered, and builds it with the file's "
    "arguments", "read the code of the class, and allow its exact name in a policy",
)  # fmt: skip
UNSAFE = Rule(
    "keras-unsafe-name", "malicious", "a Keras model asks for something that runs code, or reaches out",
    "the loader imports the name and calls it with the file's arguments", "do not load it",
)  # fmt: skip
EXTERNAL = Rule(
    "keras-external-model", "suspicious", "a Keras model loads another model from a path",
    "TFSMLayer loads the SavedModel in that folder, with whatever operators it has", _SAFE,
)  # fmt: skip
WRAPPED = Rule(
    "keras-torch-module", "suspicious", "a Keras model carries a pickled torch module",
    "TorchModuleWrapper unpickles it with weights_only=False", _SAFE,
)  # fmt: skip
PATH = Rule(
    "keras-vocabulary-path", "suspicious", "a layer of a Keras model reads a file that the model names",
    "a path or an address in the place of a vocabulary is opened when the model is loaded; its lines become part of it",
    "put the words into the model, or ship the file beside it under a plain name",
)  # fmt: skip
DUPLICATE = Rule(
    "keras-duplicate-key", "suspicious", "a Keras model says twice what it is built from",
    "readers that take the first and readers that take the last see two models", "save the model again",
)  # fmt: skip
RULES = (LAMBDA, FUNCTION, CLASS, UNSAFE, EXTERNAL, WRAPPED, PATH, DUPLICATE)

# The key, however its letters are escaped: what a JSON reader sees counts.
_KEY = re.compile(
    b'"' + b"".join(rb"(?:%c|\\u00%02x)" % (c, c) for c in b"class_name") + rb'"\s*:', re.IGNORECASE
)  # fmt: skip
STEP = 1 << 20
MAX_TEXT = 64 << 20
# Markers for values that are no objects.
VALUES = frozenset({
    "__keras_tensor__", "__tensor__", "__numpy__", "__bytes__", "__ellipsis__", "__slice__", "__tuple__",
    "__frozenset__", "TensorShape", "TypeSpec",
})  # fmt: skip
SPECS = frozenset({"TensorSpec", "RaggedTensorSpec", "SparseTensorSpec", "BoundedTensorSpec"})
# Layers that wrap a single function of TensorFlow (2.4 to 2.15), by the function's name in its API.
OPERATION_LAYERS = frozenset({"TFOpLambda", "SlicingOpLambda", "ClassMethod", "InstanceMethod", "InstanceProperty"})
PURE_MODULES = frozenset({
    "", "math", "math.special", "nn", "linalg", "image", "signal", "strings", "sparse", "ragged", "random", "bitwise",
    "sets", "quantization", "dtypes", "audio", "__operators__", "keras.backend", "keras.activations",
    "experimental.numpy", "compat.v1", "compat.v1.nn", "compat.v1.math",
})  # fmt: skip
UNSAFE_TENSORFLOW = frozenset({
    "py_function", "numpy_function", "py_func", "eager_py_func", "read_file", "write_file", "load_library",
    "load_op_library", "load_file_system_library", "import_graph_def", "PyFunc", "EagerPyFunc", "ReadFile", "WriteFile",
})  # fmt: skip
WORDS = ("vocabulary", "vocabulary_file", "idf_weights", "filepath", "file_path", "asset_path", "proto", "cache_dir",
         "origin", "url", "fname", "local_path", "weights_path", "model_path", "checkpoint")  # fmt: skip
OPEN_WORDS = frozenset(WORDS)
# Of Keras, and yet no part of a model: what loads, fetches, writes, or lowers its guard.
UNSAFE_KERAS = re.compile(
    r"(?:get_file|load_\w+|save_\w+|enable_unsafe_deserialization|disable_\w+|model_from_\w+|run_\w+|func_load"
    r"|deserialize_\w+|from_config|plot_model|extract_archive|\w*_from_directory|set_\w+|download\w*|open|unzip\w*"
    r"|get_custom_objects|import_\w+|clear_session|register_\w+)"
)


def scan(piece: Piece, kind: str) -> None:
    """``config.json``, and any other JSON that has the key ``class_name``."""
    if piece.size > MAX_TEXT or not piece.size:
        return  # an index, a vocabulary; what Keras reads is held to less
    overlap, at = b"", 0
    while at < piece.size:
        chunk = piece.data.read(at, min(STEP, piece.size - at))
        if _KEY.search(overlap + chunk):
            break
        overlap, at = chunk[-128:], at + len(chunk)
    else:
        return
    try:
        document = configs.load(piece)
    except ArtifactkitError:
        if piece.name.lower() in ("model.json", "architecture.json"):
            raise
        return  # ``configs`` says so of those that it reads
    if piece.depth == 0 and looks_like(document):
        piece.report.formats.append("keras-config")
    walk(piece, document)


def looks_like(document: object) -> bool:
    """Whether the outermost object is one that Keras serialized."""
    return isinstance(document, dict) and "class_name" in document and "config" in document


def judge(piece: Piece, text: bytes, revived: bool = False) -> None:
    """Judge a document that was found within another file. What is no JSON is none.

    ``revived``: the loader makes a stand-in for names that it does not know, so those without a module are no finding.
    """
    try:
        document = json.loads(text.decode("utf-8"), object_pairs_hook=configs._object)
    except (ValueError, RecursionError):
        return
    walk(piece, document, revived)


def _objects(root: object) -> Iterator[dict[str, object]]:
    waiting: list[object] = [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
            if isinstance(value, configs.Object):
                waiting.extend(value.others)
            waiting.extend(reversed(list(value.values())))
        elif isinstance(value, list):
            waiting.extend(reversed(value))


def walk(piece: Piece, document: object, revived: bool = False) -> None:
    """Judge every object of the document that the loader would build."""
    for one in _objects(document):
        if isinstance(one, configs.Object):
            for key in sorted(one.twice & {"class_name", "config", "module", "registered_name", "function"}):
                piece.find(DUPLICATE, f"the key {key!r} comes twice", name=key)
        names = [one.get("class_name")]
        if isinstance(one, configs.Object) and "class_name" in one.twice:
            names += [value for value in one.others if isinstance(value, str)]
        for name in names:
            if isinstance(name, str) and ("config" in one or "module" in one):
                _Judge(piece, revived).judge(one, name)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _own(registered: str, name: str) -> bool:
    return registered in (f"Custom>{name}", f"keras>{name}", f"builtins>{name}", f"keras.layers>{name}")


def _builtin(name: str) -> bool:
    return python_names.is_dangerous(f"builtins.{name}") and name in python_names.DANGEROUS_LAST


class _Judge:
    def __init__(self, piece: Piece, revived: bool) -> None:
        self.piece, self.revived = piece, revived

    def judge(self, one: dict[str, object], name: str) -> None:
        module, registered, config = _text(one.get("module")), _text(one.get("registered_name")), one.get("config")
        short = name.rpartition(">")[2]
        if name == "__lambda__":
            self._code("a function")
        elif name == "__typespec__":
            if one.get("spec_name") not in SPECS:
                self._name(CLASS, module, _text(one.get("spec_name")))
        elif name == "function":
            self._function(module, _text(config), registered)
        elif short == "Lambda" or module.endswith("lambda_layer"):
            self._lambda(config)
        elif short == "TFSMLayer":
            self._model_elsewhere(config)
        elif short == "TorchModuleWrapper":
            self._torch(config)
        elif short in OPERATION_LAYERS:
            self._operation(config)
        elif short == "TensorFlowOpLayer":
            self._node(config)
        elif name not in VALUES:
            ordinary = name in keras_names.CLASSES and (not module or module in keras_names.MODULES)
            if not ordinary:
                self._name(CLASS, module, name, registered)
            elif registered not in ("", name) and not _own(registered, name):
                self._name(CLASS, "", registered)
        if isinstance(config, dict):
            self._paths(name, config)

    def _code(self, where: str) -> None:
        self.piece.find(LAMBDA, f"{where} is given as bytes of a Python code object", name="__lambda__")
        runs = "keras.saving.load_model(safe_mode=False), Keras 2 always"
        self.piece.runs("a Python function in the model", runs, _SAFE)

    def _lambda(self, config: object) -> None:
        """Keras 2: ``function`` is [base64, defaults, closure], or a name with type ``function``."""
        if not isinstance(config, dict):
            self.piece.find(FUNCTION, "a Lambda layer without a readable function", name="Lambda")
            return
        for key in ("function", "output_shape", "mask"):
            value = config.get(key)
            kind = config.get(f"{key}_type")
            packed = isinstance(value, list) and bool(value) and isinstance(value[0], str) and key != "output_shape"
            if kind == "lambda" or packed:
                self._code(f"{key} of a Lambda layer")
            elif isinstance(value, str) and (key == "function" or kind == "function"):
                module = _text(config.get("module" if key == "function" else f"{key}_module"))
                self._function(module, value, "", lambda_layer=True)
            elif key == "function" and not (isinstance(value, dict) and "class_name" in value):
                self.piece.find(FUNCTION, "a Lambda layer without a readable function", name="Lambda")

    def _function(self, module: str, name: str, registered: str, lambda_layer: bool = False) -> None:
        plain = name in keras_names.FUNCTIONS and (not module or module in keras_names.FUNCTION_MODULES)
        if plain and registered in ("", "function", name):
            return
        if lambda_layer and module == "__main__":
            module = ""
        if module == "builtins" and not _builtin(name):
            module = ""
        self._name(FUNCTION, module, name or registered, registered)

    def _name(self, rule: Rule, module: str, name: str, registered: str = "") -> None:
        """A name outside of the tables: ``malicious`` where it is known to run code."""
        full = f"{module}.{name}" if module else name
        if registered not in ("", name, "function") and not module:
            full = registered
        root = module.partition(".")[0]
        unsafe = ("." in full and python_names.is_dangerous(full)) or root in python_names.DANGEROUS_ROOTS
        if root in ("keras", "tf_keras", "tensorflow") and UNSAFE_KERAS.fullmatch(name.rpartition(".")[2]):
            unsafe = True
        if module.startswith("keras.") and module.split(".")[1] in ("config", "utils", "saving", "export"):
            unsafe = True
        what = "asks for the function" if rule is FUNCTION else "asks for the class"
        if unsafe or module or not self.revived:
            self.piece.find(UNSAFE if unsafe else rule, f"{what} {full[:200]}", name=full[:200])
        self.piece.runs(f"{full[:200]}: imported and called by name", "keras.saving.load_model", _SAFE)

    def _model_elsewhere(self, config: object) -> None:
        path = _text(config.get("filepath")) if isinstance(config, dict) else ""
        problem = outside.by_name(path).problem if path else ""
        severity: Severity = "malicious" if problem else "suspicious"
        self.piece.find(EXTERNAL, f"TFSMLayer loads {path[:200]!r}" + (f": {problem}" if problem else ""),
                        name=path[:200], severity=severity)  # fmt: skip

    def _torch(self, config: object) -> None:
        packed = config.get("module") if isinstance(config, dict) else None
        self.piece.find(WRAPPED, "TorchModuleWrapper", name="TorchModuleWrapper")
        if isinstance(packed, dict):
            packed = packed.get("config") or packed.get("value")
        if isinstance(packed, str):
            try:
                inner = binascii.a2b_base64(packed.encode("latin-1", "replace"))
            except binascii.Error:
                return
            self.piece.look(self.piece.inner(Memory(inner), "(TorchModuleWrapper)/module.pt", "keras"))

    def _operation(self, config: object) -> None:
        """The name is looked up in TensorFlow's API: ``math.add``, ``nn.relu``, and ``io.write_file`` as well."""
        if not isinstance(config, dict):
            return
        symbol = _text(config.get("function") or config.get("method_name") or config.get("cls_symbol"))
        for full in sorted({symbol, _text(config.get("cls_symbol"))} - {""}):
            module, _, last = full.removeprefix("tf.").rpartition(".")
            if module == "raw_ops" and last in savedmodel_ops.ORDINARY:
                continue
            if module not in PURE_MODULES or last not in keras_names.TENSORFLOW_FUNCTIONS:
                rule = UNSAFE if last in UNSAFE_TENSORFLOW else FUNCTION
                shown = f"tensorflow.{full}"[:200]
                self.piece.find(rule, f"a layer calls {shown}", name=shown)

    def _node(self, config: object) -> None:
        """TensorFlow 2.0 to 2.3: the layer is one NodeDef, as JSON in a string."""
        node = config.get("node_def") if isinstance(config, dict) else None
        if isinstance(node, str):
            try:
                node = json.loads(node)
            except (ValueError, RecursionError):
                node = None
        op = node.get("op") if isinstance(node, dict) else None
        if not isinstance(op, str) or op not in savedmodel_ops.ORDINARY:
            severity: Severity = "malicious" if op in savedmodel_ops.PYTHON else "suspicious"
            self.piece.find(FUNCTION, f"a layer is the operator {str(op)[:100]}", name=str(op)[:100], severity=severity)

    def _paths(self, layer: str, config: dict[str, object]) -> None:
        for key, value in config.items():
            if key in OPEN_WORDS and isinstance(value, str) and value:
                problem = outside.by_name(value).problem
                if problem:
                    self.piece.find(PATH, f"{layer}: {key} is {problem}: {value[:200]!r}", name=value[:200])
