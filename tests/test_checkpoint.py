"""Which part of a checkpoint its weights are, what they are called, and what is said about the rest."""

from __future__ import annotations

import collections
import json
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from test_tensor_names import raw, read_zip, torch_zip

from artifactkit.artifact import Weights
from artifactkit.checkpoint import CHOICES, EMA, TRAINING, collect, strip_wrappers
from artifactkit.errors import LimitExceeded, Refused, UsageError
from artifactkit.files import Memory
from artifactkit.pickles import Machine, Opaque
from artifactkit.source import Inline, read_all
from artifactkit.tensor_names import Storage, parse_dtype, storage_id, tensor_table
from artifactkit.types import ReadOptions

warnings.filterwarnings("ignore", message=".*[Qq]uantiz.*")

T = torch.arange


def gather(value: object, **options: Any) -> Weights:
    """What a reader of torch's zip files would return for ``value``."""
    data = torch_zip(value)
    root, machine = read_zip(data)
    return collect(
        root,
        format="torch-zip",
        file="model.pt",
        options=ReadOptions(**options),
        machines=[machine],
        file_size=len(data),
    )


def contents(weights: Weights) -> dict[str, list[Any]]:
    """Names and values, for float32 tensors."""
    return {t.name: np.frombuffer(read_all(t.source), "<f4").tolist() for t in weights}


# -- the rule

A, B, C = T(2.0), T(3.0), T(4.0)
OPTIMIZER = {"state": {0: {"step": A, "exp_avg": B}}, "param_groups": [{"lr": 0.1, "params": [0]}]}
RULE: dict[str, tuple[Any, str, list[str]]] = {
    "a plain state dict": ({"w": A, "b": B}, "the whole file", ["w", "b"]),
    "state_dict": ({"epoch": 3, "state_dict": {"w": A}}, "state_dict", ["w"]),
    "model": ({"model": {"w": A}, "optimizer": {"state": {0: {"m": B}}}}, "model", ["w"]),
    "model before ema": ({"ema": {"w": B}, "model": {"w": A}}, "model", ["w"]),
    "only ema": ({"params_ema": {"w": A}, "step": 1}, "params_ema", ["w"]),
    "params before params_ema": ({"params_ema": {"w": B}, "params": {"w": A}}, "params", ["w"]),
    "state_dict before model": ({"model": {"w": B}, "state_dict": {"w": A}}, "state_dict", ["w"]),
    "a name that holds no tensors": ({"model": "resnet", "net": {"w": A}}, "net", ["w"]),
    "one within another": ({"model": {"state_dict": {"w": A}, "args": {"d": 1}}}, "model.state_dict", ["w"]),
    "generator": ({"generator": {"w": A}, "discriminator": {"w": B}}, "generator", ["w"]),
    "no usual name": ({"encoder": {"w": A}, "decoder": {"w": B}}, "the whole file", ["encoder.w", "decoder.w"]),
    "no usual name, optimizer": ({"encoder": {"w": A}, "optim": {"m": B}}, "the whole file", ["encoder.w"]),
    "no usual name, optimizers by their form": (
        {"encoder": {"w": A}, "adam_e": OPTIMIZER, "decoder": {"w": B}, "adam_d": OPTIMIZER},
        "the whole file",
        ["encoder.w", "decoder.w"],
    ),
    "an optimizer alone": (OPTIMIZER, "nothing: the whole file is an optimizer's state", []),
    "what only looks like an optimizer": (
        {"state": A, "param_groups": {"w": B}},
        "the whole file",
        ["state", "param_groups.w"],
    ),
    "a list": ([A, {"w": B}], "the whole file", ["0", "1.w"]),
    "a tuple in a dict": ({"layers": (A, B)}, "the whole file", ["layers.0", "layers.1"]),
    "one tensor": (A, "the whole file", ["tensor"]),
    "integer keys": ({0: A, 1: {"w": B}}, "the whole file", ["0", "1.w"]),
    "a tensor called model": ({"model": A, "w": B}, "the whole file", ["model", "w"]),
    "a tensor called optimizer": ({"optimizer": A, "w": B}, "the whole file", ["optimizer", "w"]),
    "shadow parameters": ({"shadow_params": [A, B]}, "shadow_params", ["0", "1"]),
}


@pytest.mark.parametrize("case", RULE)
def test_the_weights_are_chosen_by_the_rule(case: str) -> None:
    value, chosen, names = RULE[case]
    weights = gather(value)
    assert list(weights.tensors) == names
    assert weights.chosen.split(" (")[0] == chosen


def test_a_state_dict_that_torch_marked_is_taken_whole() -> None:
    marked: Any = collections.OrderedDict(model=collections.OrderedDict(w=A), w=B)
    marked._metadata = collections.OrderedDict()
    assert list(gather(marked).tensors) == ["model.w", "w"]
    assert list(gather(collections.OrderedDict(marked)).tensors) == ["w"]


def test_the_names_of_the_rule_do_not_overlap() -> None:
    assert len({*CHOICES, *EMA, *TRAINING}) == len(CHOICES) + len(EMA) + len(TRAINING)


# -- the bug reports of section A


def test_scalars_beside_the_weights_are_listed_and_the_tensors_kept() -> None:
    weights = gather({"state_dict": {"w": torch.ones(2)}, "best_ema": np.float64(0.5)})
    assert contents(weights) == {"w": [1.0, 1.0]}
    assert [(s.path, s.type, s.text) for s in weights.skipped] == [("best_ema", "float64", "0.5")]
    assert weights.code == []


def test_a_state_dict_within_the_state_dict() -> None:
    weights = gather({"state_dict": {"w": A, "state_dict": {"w": A + 1}}, "epoch": 3})
    assert contents(weights) == {"w": [0.0, 1.0], "state_dict.w": [1.0, 2.0]}
    assert any("holds another state_dict" in note for note in weights.notes)
    assert [(s.path, s.text) for s in weights.skipped] == [("epoch", "3")]


@pytest.mark.parametrize("cut", [slice(0, 10), slice(7, 17), slice(0, 10, 2)])
def test_only_the_view_reaches_the_output(cut: slice) -> None:
    base = torch.zeros(100_000)
    base[50] = 1234.5
    base[cut] += 1
    (tensor,) = gather({"w": base[cut]})
    assert tensor.nbytes == 4 * len(base[cut])
    assert read_all(tensor.source) == raw(base[cut])
    assert np.float32(1234.5).tobytes() not in read_all(tensor.source)


# -- what is left out, and what is said about it


def trainer_file() -> dict[str, Any]:
    return {
        "epoch": 3, "state_dict": {"w": A}, "lr_schedulers": [{"last": 1}], "ema": {"w": A + 1}, "means": np.ones(2),
        "optimizer": {"state": {0: {"exp_avg": B, "step": C}}, "groups": [{}]},
        "hyper_parameters": {"lr": 0.1, "name": "x"},
    }  # fmt: skip


def test_optimizer_state_is_left_out_and_counted() -> None:
    weights = gather(trainer_file())
    dropped = {d.name: (d.why, d.nbytes) for d in weights.dropped}
    assert dropped["optimizer.state.0.exp_avg"] == ("optimizer and training state", 12)
    assert dropped["optimizer.state.0.step"] == ("optimizer and training state", 16)
    assert dropped["ema.w"] == ("another set of weights, chosen with --state-dict-key ema", 8)
    assert dropped["means"] == ("outside state_dict, taken with --all", 16)
    assert any("--state-dict-key ema" in note for note in weights.notes)
    assert {(s.path, s.type, s.text) for s in weights.skipped} == {
        ("epoch", "int", "3"), ("hyper_parameters", "dict", "lr: 0.1, name: x"),
    }  # fmt: skip


def test_an_optimizer_alone_is_counted_and_taken_on_request() -> None:
    names = ["state.0.step", "state.0.exp_avg"]
    weights = gather(OPTIMIZER)
    assert [(d.name, d.why) for d in weights.dropped] == [(name, "optimizer and training state") for name in names]
    assert weights.skipped == []
    assert list(gather(OPTIMIZER, everything=True).tensors) == names
    assert list(gather(OPTIMIZER, state_dict_key="state.0").tensors) == ["step", "exp_avg"]


def test_everything_is_taken_on_request() -> None:
    weights = gather(trainer_file(), everything=True)
    assert list(weights.tensors) == [
        "state_dict.w", "ema.w", "means", "optimizer.state.0.exp_avg", "optimizer.state.0.step",
    ]  # fmt: skip
    assert weights.dropped == []


@pytest.mark.parametrize(
    ("key", "names"),
    [("ema", ["w"]), ("optimizer.state", ["0.exp_avg", "0.step"]), ("optimizer.state.0", ["exp_avg", "step"]),
     ("means", ["means"])],
)  # fmt: skip
def test_a_part_can_be_chosen_by_its_key(key: str, names: list[str]) -> None:
    weights = gather(trainer_file(), state_dict_key=key)
    assert list(weights.tensors) == names
    assert weights.chosen == f"{key} (--state-dict-key)"
    assert {d.name for d in weights.dropped} & {"state_dict.w"}


def test_keys_with_dots_are_followed_too() -> None:
    value = {"a.b": {"c": {"w": A}}, "a": {"b": {"w": B}}}
    assert contents(gather(value, state_dict_key="a.b.c")) == {"w": [0.0, 1.0]}
    assert list(gather(value, state_dict_key="a.b").tensors) == ["c.w"]


@pytest.mark.parametrize("key", ["nothing", "epoch", "state_dict.x", "hyper_parameters", "state_dict.w.x", ""])
def test_a_key_that_is_not_there_lists_those_that_hold_tensors(key: str) -> None:
    if not key:
        assert list(gather(trainer_file(), state_dict_key="").tensors)  # the root itself
        return
    with pytest.raises(UsageError) as caught:
        gather(trainer_file(), state_dict_key=key)
    assert caught.value.exit_code == 2
    assert caught.value.hint == "keys that hold tensors: state_dict, ema, optimizer, optimizer.state"


def test_a_file_without_tensors_says_so() -> None:
    weights = gather({"epoch": 3})
    assert not weights.tensors
    assert any("no weights" in note for note in weights.notes)
    assert [(s.path, s.text) for s in weights.skipped] == [("epoch", "3")]
    assert [(s.path, s.type) for s in gather("text").skipped] == [("", "str")]


# -- wrapper prefixes and names


@pytest.mark.parametrize(
    ("name", "stripped"),
    [("module.w", "w"), ("_orig_mod.w", "w"), ("module._orig_mod.a.b", "a.b"), ("a.module.b", "a.b"), ("w", "w"),
     ("a._orig_mod.b", "a.b"), ("module", "module"), ("a.module", "a.module"), ("modules.w", "modules.w"),
     ("module.module", "module")],
)  # fmt: skip
def test_wrapper_prefixes(name: str, stripped: str) -> None:
    assert strip_wrappers(name) == stripped
    (tensor,) = gather({name: A})
    assert tensor.name == stripped
    if name != stripped:
        assert tensor.came_from() == (name,)
        assert tensor.steps[0].outcome == "renamed"
    (kept,) = gather({name: A}, keep_prefix=True)
    assert (kept.name, kept.steps) == (name, ())


@pytest.mark.parametrize(
    ("value", "name", "both"),
    [({"module.w": A, "w": B}, "w", ("['module.w']", "['w']")),
     ({"a": {"b": A}, "a.b": B}, "a.b", ("['a']['b']", "['a.b']")), ({0: A, "0": B}, "0", ("[0]", "['0']"))],
)  # fmt: skip
def test_two_tensors_of_one_name_are_an_error_that_names_both(value: Any, name: str, both: tuple[str, str]) -> None:
    with pytest.raises(Refused) as caught:
        gather(value)
    assert caught.value.tensor == name
    assert all(path in (caught.value.found or "") for path in both)


def test_kept_prefixes_keep_names_apart() -> None:
    assert list(gather({"module.w": A, "w": B}, keep_prefix=True).tensors) == ["module.w", "w"]


def test_odd_keys() -> None:
    assert list(gather({b"a": A, None: B, True: C}).tensors) == ["a", "None", "True"]
    with pytest.raises(Refused, match="cannot be a name"):
        gather({("a", 1): A})
    assert list(gather({("a", 1): "no tensor", "w": A}).tensors) == ["w"]
    with pytest.raises(Refused, match="cannot be a name") as caught:
        gather({"k" * 70_000: A})
    assert caught.value.found == "a key of 70000 bytes"


def test_ties_stay_two_tensors_with_equal_sources() -> None:
    for value in ({"embed": A, "head": A}, {"head": A, "embed": A}):
        first, second = gather(value)
        assert first.same_bytes(second)
    one, two = gather({"a": A, "b": A.clone()})
    assert not one.same_bytes(two)
    x = np.ones(3)
    one, two, three = gather({"a": x, "b": x.copy(), "c": x})
    assert not one.same_bytes(two)
    assert one.same_bytes(three)


# -- whole modules


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(2, 3, bias=False)
        self.norm = torch.nn.BatchNorm1d(3)
        self.again = self.first
        self.register_buffer("kept", torch.ones(2))
        self.register_buffer("passing", torch.zeros(2), persistent=False)
        self.register_buffer("none", None)
        self.scale = torch.nn.Parameter(torch.ones(1))
        self.plain = torch.zeros(5)
        self.parts = torch.nn.ModuleList([torch.nn.Linear(1, 1), torch.nn.ModuleDict({"x": torch.nn.Conv1d(1, 1, 1)})])
        self.params = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(1))])
        self.me = [self]


@pytest.mark.parametrize("wrap", [lambda net: net, lambda net: {"model": net, "epoch": 1}, lambda net: {"a": net}])
def test_a_module_gives_its_state_dict(wrap: Any) -> None:
    net = Net()
    truth = net.state_dict()
    value = wrap(net)
    prefix = "a." if isinstance(value, dict) and "a" in value else ""
    weights = gather(value)
    assert list(weights.tensors) == [prefix + name for name in truth]
    for name, tensor in truth.items():
        assert read_all(weights.tensors[prefix + name].source) == raw(tensor)
    assert (__name__, "Net") in {(c.module, c.name) for c in weights.code}
    assert [c.full for c in weights.code] == sorted(c.full for c in weights.code)
    if not prefix:
        assert {d.name for d in weights.dropped} == {"plain", "passing"}


def test_a_wrapped_module_loses_its_wrapper() -> None:
    assert list(gather(torch.nn.DataParallel(torch.nn.Linear(1, 1))).tensors) == ["weight", "bias"]


class Estimator:
    def __init__(self) -> None:
        self.coef_ = np.arange(3.0)
        self.name = "x"
        self.inner = {"deep": [np.ones(1)]}


def test_objects_of_other_classes_are_walked_by_their_attributes() -> None:
    weights = gather({"est": Estimator()})
    assert list(weights.tensors) == ["est.coef_", "est.inner.deep.0"]
    assert [(s.path, s.text) for s in weights.skipped] == [("est.name", "x")]


def test_members_of_a_script_module() -> None:
    data = torch_zip({"w": A, "other": B})
    root, machine = read_zip(data)
    opaque = Opaque("x")
    opaque.attrs.update(root)
    options = ReadOptions()
    only_w = lambda found: frozenset({"w"})
    weights = collect(
        opaque,
        format="torchscript",
        file="m.pt",
        options=options,
        machines=[machine],
        file_size=len(data),
        members=only_w,
    )
    assert list(weights.tensors) == ["w"]
    weights = collect(opaque, format="torchscript", file="m.pt", options=options, file_size=len(data))
    assert list(weights.tensors) == ["w", "other"]


# -- object arrays


def test_object_arrays_are_containers() -> None:
    box = np.array(None, dtype=object)
    box[()] = {"pnet": [np.ones(2), np.zeros(1)], "n": 3}
    assert list(gather(box).tensors) == ["pnet.0", "pnet.1"]
    several = np.empty(2, dtype=object)
    several[0], several[1] = np.ones(1), {"w": np.ones(2)}
    assert list(gather({"a": several}).tensors) == ["a.0", "a.1.w"]


# -- tensors that cannot be passed on


def test_a_sparse_tensor_is_refused_by_name_only_where_it_is_used() -> None:
    sparse = torch.eye(2).to_sparse()
    weights = gather({"state_dict": {"emb": {"weight": sparse}, "w": A}})
    assert list(weights.tensors) == ["w"]
    assert [(name, "sparse" in error.what, error.tensor) for name, error in weights.refused.items()] == [
        ("emb.weight", True, "emb.weight")
    ]
    assert list(gather({"state_dict": {"w": A}, "optimizer": {"g": sparse}}).tensors) == ["w"]


def test_quantised_tensors_report_scale_and_zero_point() -> None:
    x = torch.linspace(-1, 1, 6).reshape(2, 3)
    per_channel = torch.quantize_per_channel(x, torch.tensor([0.1, 0.25]), torch.tensor([1, 2]), 0, torch.qint8)
    weights = gather({"q": torch.quantize_per_tensor(x, 0.1, 3, torch.quint8), "c": per_channel, "w": x})
    assert json.loads(weights.metadata["quantized.q"]) == {
        "type": "quint8", "scheme": "per_tensor_affine", "scale": 0.1, "zero_point": 3
    }  # fmt: skip
    found = json.loads(weights.metadata["quantized.c"])
    assert (found["axis"], found["zero_point"]) == (0, [1, 2])
    assert found["scale"] == pytest.approx([0.1, 0.25])
    assert {loss.tensor for loss in weights.losses} == {"q", "c"}
    assert all(loss.kind == "type-substituted" for loss in weights.losses)
    assert [t.dtype.name for t in weights] == ["u8", "i8", "f32"]


# -- values shaped to hurt


def interpret(data: bytes) -> Weights:
    def persistent(pid: object) -> object:
        storage = storage_id(pid).storage()
        storage.source = Inline(bytes(storage.nbytes), (storage.key, 0))
        return storage

    machine = Machine(Memory(data), table=tensor_table(), persistent=persistent)
    root = machine.load()
    return collect(root, format="pickle", file="x", options=ReadOptions(), machines=[machine], file_size=len(data))


TENSOR = (
    b"ctorch._utils\n_rebuild_tensor_v2\n((U\7storagectorch\nFloatStorage\nU\0010U\3cpuK\4tQK\0K\2\x85K\1\x85\x89NtR"
)


def test_containers_that_contain_each_other_over_and_over() -> None:
    laughs = b"}U\1w" + TENSOR + b"s"
    for level in range(60):
        laughs += b"q" + bytes([level]) + b"0}(U\1ah" + bytes([level]) + b"U\1bh" + bytes([level]) + b"u"
    with pytest.raises(LimitExceeded):
        interpret(b"\x80\x02" + laughs + b".")
    few = b"}U\1w" + TENSOR + b"s"
    for level in range(6):
        few += b"q" + bytes([level]) + b"0}(U\1ah" + bytes([level]) + b"U\1bh" + bytes([level]) + b"u"
    assert len(interpret(b"\x80\x02" + few + b".").tensors) == 64


def test_one_long_key_cannot_be_repeated_into_gigabytes_of_names() -> None:
    key = b"X" + (50_000).to_bytes(4, "little") + b"k" * 50_000 + b"q\0"
    several = lambda n: b"\x80\x02}" + key + b"}(" + TENSOR + b"q\x010" + b"".join(
        b"J" + i.to_bytes(4, "little") + b"h\1" for i in range(n)) + b"us."  # fmt: skip
    assert len(interpret(several(20)).tensors) == 20
    with pytest.raises(LimitExceeded):
        interpret(several(5000))


def test_cycles_end() -> None:
    weights = interpret(b"\x80\x02}q\0(U\1w" + TENSOR + b"U\2meh\0U\1l]q\1(h\1h\0eu.")
    assert list(weights.tensors) == ["w"]


def test_nesting_is_bounded_where_there_are_tensors_and_free_elsewhere() -> None:
    deep = lambda n, leaf: b"\x80\x02}(U\1w" + TENSOR + b"U\1d" + b"]" * n + leaf + b"a" * n + b"u."
    assert len(interpret(deep(100, TENSOR)).tensors) == 2
    assert len(interpret(deep(100_000, b"N")).tensors) == 1
    with pytest.raises(LimitExceeded, match="nested too deep"):
        interpret(deep(100_000, TENSOR))


def test_many_expanded_tensors_are_a_bomb_together() -> None:
    wide = TENSOR.replace(b"K\2\x85K\1\x85", b"J\0\0\x80\0\x85K\0\x85")  # 8388608 floats of stride 0: 32 MiB
    assert len(interpret(b"\x80\x02](" + wide + b"e.").tensors) == 1
    with pytest.raises(LimitExceeded, match="out of all proportion"):
        interpret(b"\x80\x02](" + wide * 3 + b"e.")


def test_names_are_safe_to_print() -> None:
    weights = gather({"state_dict": {"w": A}, "\x1b[31mred": 1, "e": "\x1b]0;title\x07"})
    assert all(s.path.isprintable() and s.text.isprintable() and s.type.isprintable() for s in weights.skipped)


def test_the_same_input_gives_the_same_answer() -> None:
    data = pickle.dumps({"a": {1, 2, "x"}, "model": {"w": np.ones(2)}}, 4)
    first, second = interpret(data), interpret(data)
    assert (first.skipped, first.chosen, list(first.tensors)) == (second.skipped, second.chosen, list(second.tensors))


def test_a_view_outside_its_storage_names_file_and_tensor() -> None:
    made = Storage("0", parse_dtype("f4").dtype, Inline(bytes(8)), 2)
    assert made.nbytes == 8
    from artifactkit.errors import Corrupt

    with pytest.raises(Corrupt) as caught:
        interpret(b"\x80\x02}U\1w" + TENSOR.replace(b"K\2\x85K\1", b"K\5\x85K\1") + b"s.")
    assert (caught.value.tensor, caught.value.file, caught.value.exit_code) == ("w", "x", 3)


class Metric(torch.nn.Module):
    """As torchmetrics' are: state in plain attributes, and in a dict of defaults."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", T(2.0))
        self.register_buffer("passing", T(3.0), persistent=False)
        self.total = T(4.0)
        self.defaults = {"total": T(5.0)}


def test_all_takes_what_a_module_does_not_save() -> None:
    assert set(gather(Metric()).tensors) == {"kept"}
    assert {d.name for d in gather(Metric()).dropped} == {"passing", "total"}
    whole = gather({"metrics": [Metric()]}, everything=True)
    assert set(whole.tensors) == {f"metrics.0.{name}" for name in ("kept", "passing", "total", "defaults.total")}
