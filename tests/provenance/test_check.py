"""What was changed is found and named: any byte of artifact or statement, and whatever follows from the source."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Akit
from hypothesis import given
from hypothesis import strategies as some
from in_toto_messages import as_message

from artifactkit import dtypes
from artifactkit.errors import ArtifactkitError, Corrupt, LimitExceeded, OutputError, Unreadable
from artifactkit.provenance import bundle, chain, check, shape
from artifactkit.provenance import statement as st
from artifactkit.provenance.check import Item
from artifactkit.report import Check
from artifactkit.retrace import check_source
from artifactkit.route import ConvertOptions, plan
from artifactkit.run import execute
from artifactkit.types import Origin

Object = dict[str, Any]


@pytest.fixture
def made(tmp_path: Path, fixtures: Path) -> Path:
    return convert(fixtures / "trainer.ckpt", tmp_path / "made.safetensors", dtype=dtypes.parse("bf16"))


def convert(source: Path, out: Path, **options: Any) -> Path:
    chosen = ConvertOptions(**options)
    execute(plan(str(source), str(out), chosen), chosen)
    return out


def statements(artifact: Path) -> Path:
    return artifact.with_name(artifact.name + st.SUFFIX)


def checked(artifact: Path, source: Path | None = None) -> list[Item]:
    """Everything that is wrong, by the library as the command calls it."""
    found = check.read_for(str(artifact))
    items = check.check_shapes(found)
    here = check.digests(check.artifact_files(str(artifact)))
    judged, line = check.check_artifact(found, here, artifact.is_file())
    items += judged + check.check_verdicts(found, here)
    if source is not None and line is not None:
        items += check_source(line, found.path, str(artifact), str(source), Origin(str(source)))
    return check.failures(items)


def rewritten(artifact: Path, change: Callable[[Object], object], seal: bool = True) -> None:
    """The statement changed by somebody who knows how it is made."""
    path = statements(artifact)
    statement = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    change(statement)
    path.write_bytes(st.line(st.sealed(statement) if seal else statement))


# Accidents: every byte counts.


def test_as_it_was_written(made: Path, fixtures: Path) -> None:
    assert checked(made) == []
    assert checked(made, fixtures / "trainer.ckpt") == []


@pytest.mark.parametrize("start", [0])  # 1, 2 and 3 are the other bytes: each is found too
def test_bytes_of_the_statements(tmp_path_factory: pytest.TempPathFactory, akit: Akit, start: int) -> None:
    artifact = _pair(tmp_path_factory)
    path = statements(artifact)
    assert akit("verify", artifact, "--against", artifact.with_name("in.npy")).returncode == 0
    data = path.read_bytes()
    here = check.digests(check.artifact_files(str(artifact)))
    unseen = []
    try:
        for at in range(start, len(data), 4):
            path.write_bytes(data[:at] + bytes([data[at] ^ (1, 0x20, 0x80)[at % 3]]) + data[at + 1 :])
            try:
                found = bundle.read(str(path))
                items = check.check_shapes(found) + check.check_artifact(found, here, True)[0]
                if not check.failures(items + check.check_verdicts(found, here)):
                    unseen.append(at)
            except Corrupt as error:
                assert error.file == str(path)
    finally:
        path.write_bytes(data)
    assert not unseen, [data[at - 30 : at + 10] for at in unseen]


@given(at=some.integers(0, 10**9), to=some.integers(0, 255))
def test_any_byte_of_the_artifact(tmp_path_factory: pytest.TempPathFactory, at: int, to: int) -> None:
    original = _pair(tmp_path_factory)
    artifact = original.with_name("other.npy")
    shutil.copy(statements(original), statements(artifact))
    data = bytearray(original.read_bytes())
    same = data[at % len(data)] == to
    data[at % len(data)] = to
    artifact.write_bytes(data)
    wrong = checked(artifact)
    assert bool(wrong) is not same
    if wrong:
        assert wrong[0].file == "other.npy"
        assert wrong[0].expected != wrong[0].found


_PAIR: list[Path] = []


def _pair(factory: pytest.TempPathFactory) -> Path:
    """One small artifact with its statement, made once."""
    if not _PAIR:
        import numpy as np

        folder = factory.mktemp("pair")
        np.save(folder / "in.npy", np.arange(4, dtype=np.float32))
        _PAIR.append(convert(folder / "in.npy", folder / "made.npy"))
    return _PAIR[0]


@pytest.mark.parametrize("cut", [1, 10, 100])
def test_a_statement_that_was_cut_off(made: Path, cut: int) -> None:
    path = statements(made)
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(Corrupt):
        checked(made)


def test_files_of_a_folder(tmp_path: Path, fixtures: Path) -> None:
    out = convert(fixtures / "tiny-llama", tmp_path / "out")
    assert checked(out, fixtures / "tiny-llama") == []
    (out / "config.json").rename(out / "other.json")
    (out / "sub").mkdir()
    (out / "sub" / "modeling.py").write_text("x")
    assert [(i.file, i.detail) for i in checked(out)] == [
        ("config.json", "a file is missing"),
        ("other.json", "a file that no statement names"),
        ("sub/modeling.py", "a file that no statement names"),
    ]


# Intent, with the source at hand: what follows from it cannot be changed, whoever seals the statement anew.


def _definition(statement: Object) -> Object:
    found: Object = statement["predicate"]["buildDefinition"]
    return found


def _external(statement: Object) -> Object:
    found: Object = _definition(statement)["externalParameters"]
    return found


def _ledger(statement: Object) -> Object:
    found: Object = _definition(statement)["internalParameters"]["ledger"]
    return found


SOURCE_TELLS: list[tuple[str, Callable[[Object], object]]] = [
    ("ledger", lambda s: _ledger(s).update(sha256="0" * 64)),
    ("ledger", lambda s: _ledger(s).update(entries=22, outcomes={"kept": 22})),
    ("ledger", lambda s: _external(s)["options"].update(dtype="f16")),
    ("ledger", lambda s: _external(s)["options"].update(include=["embed*"])),
    ("ledger", lambda s: _external(s)["options"].update(everything=True)),
    ("ledger", lambda s: _external(s)["options"].update(unheard_of=True)),
    ("ledger", lambda s: _external(s).update({"from": "npz"})),
    ("ledger", lambda s: _external(s).update(to="onnx")),
    (
        "source",
        lambda s: s["predicate"]["buildDefinition"]["resolvedDependencies"][0]["digest"].update(sha256="1" * 64),
    ),
    ("source", lambda s: s["predicate"]["buildDefinition"].update(resolvedDependencies=[])),
]


@pytest.mark.parametrize("number", range(len(SOURCE_TELLS)))
def test_what_the_source_tells(made: Path, fixtures: Path, number: int) -> None:
    subject, change = SOURCE_TELLS[number]
    rewritten(made, change)
    assert checked(made) == []  # nothing protects an unsigned statement by itself
    assert subject in {item.subject for item in checked(made, fixtures / "trainer.ckpt")}


def test_an_artifact_and_its_digest_changed_alike(made: Path, fixtures: Path, tmp_path: Path) -> None:
    """Other tensors under a statement that was made to fit: the source tells that they do not follow from it."""
    other = convert(fixtures / "trainer.ckpt", tmp_path / "other.safetensors", rename=("embed=else",))
    shutil.copy(other, made)
    digest = check.digests({"x": str(made)})["x"].sha256
    rewritten(made, lambda s: s["subject"][0]["digest"].update(sha256=digest))
    assert checked(made) == []
    wrong = [item for item in checked(made, fixtures / "trainer.ckpt") if item.subject == "tensors"]
    assert {"tensor embed.weight", "tensor else.weight"} <= {item.detail for item in wrong}


@pytest.mark.parametrize("name", ["plain.pt", "nothing.pt"])
def test_another_source(made: Path, fixtures: Path, name: str) -> None:
    wrong = checked(made, fixtures / name)
    assert wrong[0].subject == "source"
    assert wrong[0].file == "trainer.ckpt"


def test_a_source_of_another_name(made: Path, fixtures: Path, tmp_path: Path) -> None:
    shutil.copy(fixtures / "trainer.ckpt", tmp_path / "renamed.bin")
    assert checked(made, tmp_path / "renamed.bin") == []


@pytest.mark.parametrize(
    ("source", "out", "options"),
    [
        ("tiny-llama", "out", {"max_shard_size": 40_000, "with_code": True}),
        ("sharded", "one.safetensors", {"dtype": dtypes.parse("f16")}),
        ("array.npy", "a.npy", {}),
        ("plain.pt", "p.npz", {"dtype": dtypes.parse("f32"), "exclude": ("norm.*",)}),
        ("trainer.ckpt", "all.safetensors", {"read": None}),
        ("tiny-llama", "t.gguf", {"quantize": "q8_0", "pre_tokenizer": "gpt-2"}),
    ],
)
def test_every_route_can_be_traced_back(
    tmp_path: Path, fixtures: Path, source: str, out: str, options: dict[str, Any]
) -> None:
    from artifactkit.types import ReadOptions

    if "read" in options:
        options = {"read": ReadOptions(everything=True, keep_prefix=True)}
    artifact = convert(fixtures / source, tmp_path / out, **options)
    assert checked(artifact, fixtures / source) == []


@pytest.mark.parametrize("name", ["../trainer.ckpt", "/etc/passwd", "a/../../b"])
def test_names_that_lead_out_of_the_source(tmp_path: Path, fixtures: Path, name: str) -> None:
    """What a statement names is looked for in the source, and nowhere else."""
    out = convert(fixtures / "tiny-llama", tmp_path / "out")
    rewritten(out, lambda s: _definition(s)["resolvedDependencies"][0].update(name=name))
    [item] = [item for item in checked(out, fixtures / "tiny-llama") if item.subject == "source"]
    assert (item.detail, item.file, item.found) == ("an input's name leads out of the source", name, None)


@pytest.mark.parametrize("outside", [True, False])
def test_the_file_of_an_option_leads_nowhere_else(tmp_path: Path, fixtures: Path, outside: bool) -> None:
    (tmp_path / "made").mkdir()
    artifact = convert(fixtures / "tiny-llama", tmp_path / "made" / "t.gguf", quantize="q8_0", pre_tokenizer="gpt-2")
    secret = tmp_path / "other.gguf" if outside else artifact.with_name("other.gguf")
    secret.write_text("secret")
    name = str(secret) if outside else secret.name
    for said in (name, f"../{secret.name}") if outside else (name,):
        rewritten(artifact, lambda s, said=said: _external(s)["options"].update(imatrix=said))  # type: ignore[misc]
        [item] = [item for item in checked(artifact, fixtures / "tiny-llama") if item.subject == "ledger"]
        assert ("an option's file leads out of the source" in item.detail) is outside
        assert item.file == (said if outside else str(secret))


def test_a_link_to_a_folder_is_a_file_too_many(tmp_path: Path, fixtures: Path) -> None:
    out = convert(fixtures / "tiny-llama", tmp_path / "out")
    (out / "more").symlink_to(tmp_path)
    with pytest.raises(Unreadable, match="regular file"):
        checked(out)


def test_an_artifact_that_is_not_here(akit: Akit) -> None:
    done = akit("provenance", "show", "hf://o/n")
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "error: statements are read from this machine")


# Shapes.


def _without(*path: str | int) -> Callable[[Object], object]:
    def change(statement: Object) -> None:
        value: Any = statement
        for key in path[:-1]:
            value = value[key]
        del value[path[-1]]

    return change


def _with(value: object, *path: str | int) -> Callable[[Object], object]:
    def change(statement: Object) -> None:
        found: Any = statement
        for key in path[:-1]:
            found = found[key]
        found[path[-1]] = value

    return change


DEFINITION, RUN = ("predicate", "buildDefinition"), ("predicate", "runDetails")
SHAPES: list[tuple[str, Callable[[Object], object]]] = [
    ("subject", _without("subject")),
    ("subject", _with([], "subject")),
    ("subject", _with({}, "subject")),
    ("subject[0]", _with("x", "subject", 0)),
    ("subject[0].digest", _without("subject", 0, "digest")),
    ("subject[0].digest.sha256", _with("AB" * 32, "subject", 0, "digest", "sha256")),
    ("subject[0].digest.sha256", _with(1, "subject", 0, "digest", "sha256")),
    ("subject[0].digest.sha256", _with({"sha1": "ab"}, "subject", 0, "digest")),
    ("subject[0].name", _without("subject", 0, "name")),
    ("predicate", _without("predicate")),
    ("predicate", _with([], "predicate")),
    ("predicate.buildDefinition", _without(*DEFINITION)),
    ("predicate.buildDefinition.buildType", _without(*DEFINITION, "buildType")),
    ("predicate.buildDefinition.externalParameters", _with("x", *DEFINITION, "externalParameters")),
    ("predicate.buildDefinition.externalParameters.to", _without(*DEFINITION, "externalParameters", "to")),
    ("predicate.buildDefinition.externalParameters.options", _with(1, *DEFINITION, "externalParameters", "options")),
    ("predicate.buildDefinition.internalParameters", _without(*DEFINITION, "internalParameters")),
    ("predicate.buildDefinition.internalParameters.ledger", _without(*DEFINITION, "internalParameters", "ledger")),
    (
        "predicate.buildDefinition.internalParameters.ledger.entries",
        _with(99, *DEFINITION, "internalParameters", "ledger", "entries"),
    ),
    ("predicate.buildDefinition.resolvedDependencies[0]", _with({}, *DEFINITION, "resolvedDependencies", 0)),
    ("predicate.runDetails", _without(*RUN)),
    ("predicate.runDetails.builder", _without(*RUN, "builder")),
    ("predicate.runDetails.builder.id", _without(*RUN, "builder", "id")),
    ("predicate.runDetails.builder.id", _with("no uri", *RUN, "builder", "id")),
    ("predicate.runDetails.builder.version.numpy", _with(2, *RUN, "builder", "version", "numpy")),
    ("predicate.runDetails.metadata.startedOn", _with({"startedOn": "yesterday"}, *RUN, "metadata")),
]


@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_a_field_that_is_wrong_is_named(made: Path, number: int) -> None:
    field, change = SHAPES[number]
    rewritten(made, change, seal=False)
    with pytest.raises(Corrupt) as caught:
        checked(made)
    assert caught.value.what == f"line 1 is not a statement as specified: {field}"
    assert caught.value.exit_code == 3
    assert caught.value.file == str(statements(made))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"", "no statement"),
        (b"\n\n", "no statement"),
        (b"x\n", "not JSON"),
        (b"[1]\n", "no statement"),
        (b'{"a":1,"a":2}\n', "key twice"),
        (b'{"a":{"b":[{"c":1,"c":2}]}}\n', "key twice"),
        (b'{"a":1}', "cut off"),
        (b"\xff\n", "UTF-8"),
        (b'{"a":NaN}\n', "not JSON"),
        (b"[" * 200_000 + b"\n", "brackets"),
        (b'{"a":' * 100 + b"1" + b"}" * 100 + b"\n", "deeply"),
        (b'{"a":' + b"9" * 100_000 + b"}\n", "number"),
        (b"{}\n" * 10_002, "too many lines"),
        (b'{"a":"\\ud800"}\n', "surrogate"),
    ],
)
def test_hostile_files(tmp_path: Path, text: bytes, what: str) -> None:
    path = tmp_path / "x.intoto.jsonl"
    path.write_bytes(text)
    with pytest.raises(Corrupt, match=what) as caught:
        bundle.read(str(path))
    assert caught.value.exit_code == 3


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.intoto.jsonl"
    with path.open("wb") as file:
        file.truncate(bundle.MAX_BUNDLE + 1)
    with pytest.raises(LimitExceeded, match="too large"):
        bundle.read(str(path))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(Unreadable):
        bundle.read(str(path))


@given(
    some.recursive(
        some.none() | some.booleans() | some.integers(-(2**60), 2**60) | some.text(max_size=5),
        lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=5), inner, max_size=3),
        max_leaves=12,
    ),
    some.sampled_from([DEFINITION, RUN, ("subject",), ("predicate",), (*RUN, "builder")]),
)
def test_any_value_anywhere(tmp_path_factory: pytest.TempPathFactory, value: object, where: tuple[str, ...]) -> None:
    """A statement that is not as specified is Corrupt, never a fault of ours."""
    original = _pair(tmp_path_factory)
    statement = json.loads(statements(original).read_bytes().splitlines()[0])
    _with(value, *where)(statement)
    line = bundle.Line(1, 0, st.canonical(statement), statement, "provenance")
    with pytest.raises(Corrupt):
        shape.check("x", line)


def _places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Where in a JSON value other values are."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, item in inner for place in ((*path, key), *_places(item, (*path, key)))]


@given(
    at=some.integers(0, 10**6),
    value=some.sampled_from(
        ["", "x", "../x", "/x", "a=b", "re:(", "0" * 64, 0, -1, 10**18, 1.5, True, None, [], [[]], ["x"], {}, {"a": 1},
         {"sha256": "0" * 64}, {"gitCommit": 1}, st.BUILD_TYPE, st.VERIFY_TYPE]
    ),
    gone=some.booleans(),
    number=some.integers(0, 1),
)  # fmt: skip
def test_whatever_is_sealed_is_no_fault(
    tmp_path_factory: pytest.TempPathFactory, at: int, value: object, gone: bool, number: int
) -> None:
    """Who writes another value can write its checksum too: it is found, or makes no difference, and no exception."""
    original = _pair(tmp_path_factory)
    artifact = original.with_name("sealed.npy")
    shutil.copy(original, artifact)
    lines = [json.loads(statements(original).read_bytes().splitlines()[0])]
    verdict = st.build_verdict(lines[0]["subject"], [], [Check("values", "x", "passed")], "cpu", {})
    lines.append(json.loads(st.line(verdict)))
    places = _places(lines[number])
    place = places[at % len(places)]
    (_without(*place) if gone else _with(value, *place))(lines[number])
    if isinstance(st._slot(lines[number]), dict):
        st.sealed(lines[number])
    statements(artifact).write_bytes(b"".join(map(st.line, lines)))
    try:
        checked(artifact, original.with_name("in.npy"))
        chain.follow(check.read_for(str(artifact)))
        bundle.add_verdicts(str(statements(artifact)), [verdict])
    except ArtifactkitError as error:
        assert error.exit_code in (1, 3)


def test_what_is_spelt_otherwise_is_held_to_the_same(made: Path) -> None:
    """A type of ours spelt with an escape is read as ours, so what only ours have is asked of it."""
    statement = json.loads(statements(made).read_bytes())
    del _definition(statement)["internalParameters"]
    text = st.line(statement)
    kind = st.BUILD_TYPE.encode()
    assert text.count(kind) == 1
    statements(made).write_bytes(text.replace(kind, b"\\u%04x" % kind[0] + kind[1:]))
    with pytest.raises(Corrupt, match="internalParameters"):
        checked(made)


@pytest.mark.parametrize("text", ["1e999", "-1e999", "1e308"])
def test_numbers_that_no_double_holds(made: Path, text: str) -> None:
    path = statements(made)
    line = path.read_bytes()
    other = b'{"builder":{"id":"x:y"},"size":%s}\n' % text.encode()
    path.write_bytes(line + other)
    if text == "1e308":
        assert checked(made) == []
        return
    with pytest.raises(Corrupt, match="no double holds"):
        checked(made)


@pytest.mark.parametrize("device", [["cpu"], {}, None, 1])
def test_a_device_that_is_no_text(made: Path, fixtures: Path, akit: Akit, device: object) -> None:
    """A verdict of ours, sealed by somebody: said to be wrong, also by verify, which looks for those to replace."""
    assert akit("verify", made, "--against", fixtures / "trainer.ckpt").returncode == 0
    path = statements(made)
    first, second = path.read_bytes().splitlines(keepends=True)
    verdict = json.loads(second)
    verdict["predicate"]["configuration"][0]["annotations"]["device"] = device
    path.write_bytes(first + st.line(st.sealed(verdict)))
    with pytest.raises(Corrupt, match=r"annotations\.device"):
        checked(made)
    assert akit("verify", made, "--against", fixtures / "trainer.ckpt").returncode == 3


def test_a_neighbour_with_a_broken_verdict(tmp_path: Path, fixtures: Path) -> None:
    """Other files are read whole or not at all: a line in them may be anything."""
    one = convert(fixtures / "plain.pt", tmp_path / "one.safetensors")
    two = convert(one, tmp_path / "two.safetensors", dtype=dtypes.parse("bf16"))
    [made] = chain.follow(check.read_for(str(two))).made
    assert made.inputs[0].made is not None
    verdict = {"_type": st.STATEMENT_TYPE, "predicateType": st.VERDICT_TYPE, "predicate": {}, "subject": []}
    with statements(one).open("ab") as file:
        file.write(st.line(verdict))
    found = chain.follow(check.read_for(str(two)))
    assert found.made[0].inputs[0].made is None
    assert any("one.safetensors.intoto.jsonl" in note for note in found.notes)


# More than one line.


def test_others_are_listed_and_left_alone(made: Path) -> None:
    path = statements(made)
    envelope = {
        "payloadType": "application/vnd.in-toto+json", "payload": base64.b64encode(b"{}").decode(), "signatures": [],
    }  # fmt: skip
    strange = '{ "of" : ["another", "kind"] }'
    with path.open("a") as file:
        file.write(json.dumps(envelope) + "\n\n" + strange + "\n")
    assert checked(made) == []
    lines = check.check_shapes(bundle.read(str(path)))
    assert [item.status for item in lines] == ["passed", "noted", "noted"]
    assert "signed envelope of application/vnd.in-toto+json" in lines[1].detail


def test_a_statement_of_another_builder_is_compared_too(made: Path) -> None:
    def other(statement: Object) -> None:
        _definition(statement)["buildType"] = "https://example.com/build/v1"
        del _definition(statement)["internalParameters"]

    rewritten(made, other, seal=False)
    assert checked(made) == []
    made.write_bytes(made.read_bytes() + b"x")
    [item] = checked(made)
    assert item.file == made.name


def test_no_statement_about_how_it_was_made(made: Path) -> None:
    statements(made).write_text('{"_type":"https://in-toto.io/Statement/v1","predicateType":"x:y","subject":[]}\n')
    [item] = checked(made)
    assert item.detail == "no statement says how it was made"
    assert chain.follow(check.read_for(str(made))).others == ["line 1: x:y"]


def test_a_chain_ends_however_it_is_tied(tmp_path: Path, fixtures: Path) -> None:
    """A statement may claim that a file was made from itself."""
    one = convert(fixtures / "array.npy", tmp_path / "one.npy")
    digest = check.digests({"x": str(one)})["x"].sha256

    def knot(statement: Object) -> None:
        statement["predicate"]["buildDefinition"]["resolvedDependencies"] = [
            {"digest": {"sha256": digest}, "name": "one"}
        ]

    rewritten(one, knot)
    [made] = chain.follow(check.read_for(str(one))).made
    assert made.inputs[0].again
    (tmp_path / "bad.intoto.jsonl").write_text("no JSON\n")
    assert any("bad.intoto.jsonl" in note for note in chain.follow(check.read_for(str(one))).notes)


def test_many_lines_are_each_said_once(made: Path) -> None:
    """Ten thousand lines fit into three megabytes: what is said of each must not be said again for all others."""
    line = bundle.read(str(made) + st.SUFFIX).lines[0]
    verdict = {
        "_type": st.STATEMENT_TYPE, "predicateType": st.VERDICT_TYPE, "subject": line.value["subject"],
        "predicate": {"result": "PASSED", "configuration": [{"uri": "x:y"}]},
    }  # fmt: skip
    other = {"payloadType": "x", "payload": ""}
    statements(made).write_bytes((line.raw + b"\n") * 300 + st.line(verdict) * 300 + st.line(other) * 300)
    found = chain.follow(check.read_for(str(made))).made
    assert len(found) == 300
    assert [(len(m.verdicts), len(m.others)) for m in found] == [(300, 300)] + [(0, 0)] * 299
    assert checked(made) == []


def test_the_line_that_is_about_the_artifact_is_compared(made: Path) -> None:
    """Among several: the one that fits, before one of ours that does not, before the one that comes nearest."""
    line = statements(made).read_bytes()
    strange = json.loads(line)
    _definition(strange)["buildType"] = "x:y"
    del _definition(strange)["internalParameters"]
    stale = json.loads(line)
    stale["subject"][0]["digest"]["sha256"] = "0" * 64
    found = [st.line(strange), st.line(st.sealed(stale))]
    for texts, number in (([found[1], found[0]], 2), (found, 1), ([found[1], line], 2), ([found[0], line], 2)):
        statements(made).write_bytes(b"".join(texts))
        here = check.digests(check.artifact_files(str(made)))
        items, best = check.check_artifact(check.read_for(str(made)), here, True)
        assert check.failures(items) == []
        assert best is not None
        assert best.number == number


@pytest.mark.parametrize("limit", [10, 32 << 20])
def test_statements_that_are_too_many_to_look_at(
    tmp_path: Path, fixtures: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    one = convert(fixtures / "plain.pt", tmp_path / "one.safetensors")
    two = convert(one, tmp_path / "two.safetensors", dtype=dtypes.parse("bf16"))
    monkeypatch.setattr(chain, "MAX_ALL", limit)
    found = chain.follow(check.read_for(str(two)))
    assert (found.made[0].inputs[0].made is None) is (limit == 10)
    assert len(found.notes) == (2 if limit == 10 else 0)


# A killed run.


def test_the_file_that_a_killed_run_left_is_named(made: Path) -> None:
    from artifactkit.beside import identity

    left = made.with_name(f".{made.name}.artifactkit-due-01234567-{identity(str(made))}.tmp")
    statements(made).rename(left)
    with pytest.raises(Unreadable) as caught:
        check.read_for(str(made))
    assert str(left) in str(caught.value.hint)
    left.rename(statements(made))
    assert checked(made) == []


# Verdicts.


def test_verdicts(made: Path, fixtures: Path, akit: Akit) -> None:
    for _ in range(2):
        done = akit("verify", made, "--against", fixtures / "trainer.ckpt")
        assert done.returncode == 0
    done = akit("verify", made, "--against", fixtures / "trainer.ckpt", "--device", "cpu", "--device", "cuda:0")
    assert done.returncode == 1
    done = akit("verify", made, "--against", fixtures / "plain.pt")
    assert done.returncode == 1
    found = bundle.read(str(statements(made)))
    assert [line.kind for line in found.lines] == ["provenance", "verdict", "verdict", "verdict", "verdict"]
    results = []
    for line in found.of("verdict"):
        message = as_message(line.value)
        device = line.value["predicate"]["configuration"][0]["annotations"]["device"]
        results.append((message.result, device))
        assert check.subjects(line.value) == check.subjects(found.lines[0].value)
        assert bool(message.failed_tests) == (message.result == "FAILED")
    assert results == [("PASSED", "none"), ("FAILED", "cpu"), ("FAILED", "cuda:0"), ("FAILED", "none")]
    assert checked(made) == []


def test_a_verdict_keeps_what_it_does_not_know(made: Path, fixtures: Path, akit: Akit) -> None:
    path = statements(made)
    strange = b'{ "of" : ["another", "kind"] }\n'
    path.write_bytes(path.read_bytes() + strange)
    path.chmod(0o640)
    assert akit("verify", made, "--against", fixtures / "trainer.ckpt").returncode == 0
    assert strange in path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(made.parent)) == [made.name, path.name]


def test_a_verdict_on_other_bytes(made: Path, fixtures: Path, akit: Akit) -> None:
    """verify says that the artifact is not the stated one; check, that the verdict is on bytes that are not these."""
    before = made.read_bytes()
    made.write_bytes(before.replace(b'"embed.weight"', b'"embed.weighs"'))
    done = akit("verify", made, "--against", fixtures / "trainer.ckpt")
    assert done.returncode == 1
    assert "as stated" in done.stdout
    made.write_bytes(before)
    [item] = checked(made)
    assert (item.subject, item.status) == ("verdict", "failed")
    assert akit("verify", made, "--against", fixtures / "trainer.ckpt").returncode == 0
    assert checked(made) == []


def test_a_verdict_that_cannot_be_written(
    made: Path, fixtures: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from artifactkit.cli.main import main

    def full(path: str, verdicts: object) -> None:
        raise OutputError("cannot write: No space left on device", file=path)

    monkeypatch.setattr(bundle, "add_verdicts", full)
    args = ["verify", str(made), "--against", str(fixtures / "trainer.ckpt")]
    assert main(args) == 0
    assert "warning: the verdict was not written" in capsys.readouterr().err
    assert main([*args, "--statement"]) == 5


def test_two_verdicts_at_once(made: Path, fixtures: Path) -> None:
    import subprocess
    import sys

    from conftest import environment

    command = [sys.executable, "-m", "artifactkit", "verify", str(made), "--against", str(fixtures / "trainer.ckpt")]
    runs = [
        subprocess.Popen([*command, "--device", f"cuda:{i}"], env=environment(), stdout=subprocess.DEVNULL)
        for i in range(4)
    ]
    for run in runs:
        assert run.wait(60) == 1
    assert len(bundle.read(str(statements(made))).of("verdict")) == 4


def test_a_verdict_says_what_its_tests_say(made: Path, fixtures: Path, akit: Akit) -> None:
    akit("verify", made, "--against", fixtures / "plain.pt")
    path = statements(made)
    first, second = path.read_bytes().splitlines(keepends=True)
    verdict = json.loads(second)
    assert verdict["predicate"]["result"] == "FAILED"
    verdict["predicate"]["result"] = "PASSED"
    path.write_bytes(first + st.line(st.sealed(verdict)))
    with pytest.raises(Corrupt, match=r"predicate\.result"):
        checked(made)
