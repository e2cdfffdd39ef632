"""Keras and HDF5: the reader against h5py on files that both write, the tables, what makes a document Keras's."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from hostile import _hdf5
from hostile.keras import DENSE, INPUT, LAMBDA, archive, layer, model
from hypothesis import given, settings
from hypothesis import strategies as st

from artifactkit.containers import hdf5
from artifactkit.errors import ArtifactkitError
from artifactkit.files import Memory
from artifactkit.scan import keras_names, library
from artifactkit.scan.scanner import scan_file


def found(data: bytes) -> list[hdf5.Found]:
    base = hdf5.superblock_at(Memory(data), data[:4096], deeper=True)
    assert base is not None
    return list(hdf5.walk(Memory(data), base))


def write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def test_reader_sees_what_h5py_wrote() -> None:
    h5py = pytest.importorskip("h5py")
    out = io.BytesIO()
    with h5py.File(out, "w") as f:
        f.attrs["model_config"] = '{"class_name": "Sequential"}'
        f.attrs["names"] = [b"first", b"second"]
        f.create_dataset("weights/dense/kernel", data=[1.0, 2.0])
        f["weights/soft"] = h5py.SoftLink("/weights/dense")
        f["outside"] = h5py.ExternalLink("other.h5", "/x")
        f.create_dataset("raw", (4,), dtype="u1", external=[("raw.bin", 0, 4)])
    seen = found(out.getvalue())
    attributes = {(a.name, a.value) for a in seen if isinstance(a, hdf5.Attribute)}
    assert attributes == {("model_config", b'{"class_name": "Sequential"}'), ("names", b"first"), ("names", b"second")}
    links = {(x.kind, x.path, x.file, x.target) for x in seen if isinstance(x, hdf5.Link)}
    assert links == {("soft", "/weights/soft", "", "/weights/dense"), ("external", "/outside", "other.h5", "/x")}
    storage = [(s.kind, s.path, s.files) for s in seen if isinstance(s, hdf5.Storage)]
    assert storage == [("external", "/raw", ("raw.bin",))]


@pytest.mark.parametrize("count", [1, 7, 300])
@pytest.mark.parametrize("version", ["earliest", "v110"])
def test_groups_of_any_size(count: int, version: str, tmp_path: Path) -> None:
    """Older groups are B-trees; newer ones of more than a few links need the library."""
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver=(version, "v110")) as f:
        for i in range(count):
            f.create_dataset(f"group/d{i}", data=[i])
        f["group"].attrs["marker"] = "here"
        f["group/last"] = h5py.ExternalLink("other.h5", "/x")
    report = scan_file(str(path))
    assert [(x.rule, x.severity, x.name) for x in report.findings] == [("hdf5-external", "suspicious", "other.h5")]


def test_virtual_dataset(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    for name, source, verdict in (("other", "other.h5", "suspicious"), ("itself", ".", "clean")):
        path = tmp_path / f"{name}.h5"
        with h5py.File(path, "w", libver="latest") as f:
            f.create_dataset("data", data=[1.0] * 4)
            layout = h5py.VirtualLayout((4,), "f8")
            layout[:] = h5py.VirtualSource(source, "data", (4,))
            f.create_virtual_dataset("view", layout)
        assert scan_file(str(path)).verdict == verdict


def test_h5py_reads_the_samples() -> None:
    """The files written by hand are what they seem to be."""
    h5py = pytest.importorskip("h5py")
    data = _hdf5.file(_hdf5.external_link("a", "/etc/passwd"), _hdf5.attribute("t", b"text"), block=512)
    with h5py.File(io.BytesIO(data), "r") as f:
        assert f.get("a", getlink=True).filename == "/etc/passwd"
        assert f.attrs["t"] == b"text"


def test_without_the_extra_a_dense_group_is_unreadable(tmp_path: Path) -> None:
    hidden = {name: sys.modules.get(name) for name in ("h5py", "py7zr")}
    try:
        sys.modules.update(dict.fromkeys(hidden))  # type: ignore[dict-item]
        assert not library.has("h5py")
        report = scan_file(write(tmp_path / "x.h5", _hdf5.file(dense=True)))
    finally:
        for name, module in hidden.items():
            sys.modules.pop(name)
            if module is not None:
                sys.modules[name] = module
    assert report.verdict == "unreadable"
    assert "scan-extra" in str(report.findings[0].hint)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 400), st.integers(0, 255), st.integers(0, 700))
def test_any_byte_changed_ends_in_links_or_our_error(at: int, value: int, length: int) -> None:
    parts = _hdf5.external_link("a", "b"), _hdf5.attribute("t", b"x" * 60), _hdf5.soft_link("c", "d")
    data = bytearray(_hdf5.file(*parts))
    data[at % len(data)] = value
    data = data[: max(8, length)]
    base = hdf5.superblock_at(Memory(bytes(data)), bytes(data[:4096]))
    if base is None:
        return
    try:
        list(hdf5.walk(Memory(bytes(data)), base))
    except ArtifactkitError:
        pass


def test_tables_hold_no_class_that_carries_code() -> None:
    for name in ("Lambda", "TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer", "Layer", "Operation"):
        assert name not in keras_names.CLASSES
    for name in ("get_file", "load_model", "while_loop", "py_function", "map_fn", "read_file"):
        assert name not in keras_names.FUNCTIONS | keras_names.TENSORFLOW_FUNCTIONS


def test_findings_name_the_member_and_what_is_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "m.keras", archive(model(INPUT, DENSE, layer("Mine", "mine.layers", "mine>Mine"))))
    report = scan_file(path)
    assert report.format == "keras"
    assert [(f.rule, f.member, f.name) for f in report.findings] == [("keras-class", "config.json", "mine.layers.Mine")]
    assert any("mine.layers.Mine" in entry.what for entry in report.inventory)


def test_the_same_document_in_any_json_file(tmp_path: Path) -> None:
    for name in ("model.json", "anything.json"):
        path = write(tmp_path / name, json.dumps(model(INPUT, LAMBDA)).encode())
        assert [f.rule for f in scan_file(path).findings] == ["keras-lambda"]
