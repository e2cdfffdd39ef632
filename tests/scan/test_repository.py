"""What else lies in a repository: who would run it, and what is elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile.repository import ELF, LFS

from artifactkit.scan.model import FileReport
from artifactkit.scan.python_calls import Danger, at_import
from artifactkit.scan.repository import scan_tree
from artifactkit.scan.scanner import scan_file
from artifactkit.scan.walk import Walk


def scan(folder: Path, name: str, content: bytes) -> FileReport:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return scan_file(str(path))


@pytest.mark.parametrize(
    ("name", "who"),
    [
        ("modeling_x.py", "trust_remote_code"),
        ("setup.py", "pip install"),
        ("conftest.py", "pytest"),
        ("custom_generate/generate.py", "custom_generate"),
        ("handler.py", "endpoint"),
        ("requirements.txt", "pip install"),
        ("pyproject.toml", "pip install"),
        ("libop.so", "load_library"),
    ],
)
def test_the_inventory_says_who_runs_it(tmp_path: Path, name: str, who: str) -> None:
    content = ELF if name.endswith(".so") else b"x = 1\n"
    report = scan(tmp_path, name, content)
    assert any(who in entry.runs for entry in report.inventory), report.inventory
    assert all(entry.avoid for entry in report.inventory)


def calls(source: str) -> list[tuple[str, Danger]]:
    found = at_import(source.encode())
    assert found is not None
    return [(call.name, call.danger) for call in found]


@pytest.mark.parametrize(
    ("source", "twin"),
    [
        ("import os\nos.system('x')", "import os\ndef f():\n    os.system('x')"),
        ("import os\nx = [os.system('x') for _ in y]", "import os\nx = lambda: os.system('x')"),
        ("import os\ndef f():\n    os.system('x')\nf()", "import os\ndef f():\n    os.system('x')\ng()"),
        ("import os as o\no.system('x')", "import posixpath as o\no.system('x')"),
        ("from subprocess import *\nimport subprocess\nsubprocess.run([])", "from subprocess import run\n"),
        ("import os\nif True:\n    os.system('x')", "import os\nif __name__ == '__main__':\n    os.system('x')"),
        (
            "import os\nif x and y:\n    os.system('x')",
            "import os\nif x and __name__ == '__main__':\n    os.system('x')",
        ),
        ("import base64\nexec(base64.b64decode(b'eA=='))", "import base64\nbase64.b64decode(b'eA==')"),
        ("exec('import os; os.system(1)')", "exec('x = 1')"),
        ("import pickle\npickle.loads(b'N.')", "import pickle\npickle.loads(open('a', 'rb').read())"),
    ],
)
def test_calls_at_import(source: str, twin: str) -> None:
    assert calls(source)
    assert calls(twin) == []


def test_source_that_cannot_be_parsed_is_inventory(tmp_path: Path) -> None:
    assert at_import(b"print 'x'") is None
    assert at_import(b"(" * 5000) is None
    assert at_import(b"x = 1\0") is None
    report = scan(tmp_path, "old.py", b"exec 'x = 1'\nprint 'x'; os.system('x')\n")
    assert any("cannot parse" in entry.what for entry in report.inventory)


def test_pointers_give_digest_and_size(tmp_path: Path) -> None:
    (finding,) = scan(tmp_path, "model.safetensors", LFS).findings
    assert finding.severity == "unreadable"
    assert "sha256:" + "ab" * 32 in finding.what and "1048576 bytes" in finding.what


def test_links(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "a").mkdir(parents=True)
    (tree / "a" / "f").write_bytes(b"x")
    for name, target in (
        ("in", "a/f"),
        ("folder", "a"),
        ("out", "../x"),
        ("up", ".."),
        ("root", "/"),
        ("dots", "a/../../x"),
    ):
        (tree / name).symlink_to(target)
    names = ["in", "folder", "out", "up", "root", "dots", "a/f"]
    assert [report.path for report in scan_tree(str(tree), names)] == ["out", "up", "root", "dots"]
    (tmp_path / "tree-evil").mkdir()
    (tree / "beside").symlink_to("../tree-evil")  # a prefix of the name is not the folder
    assert [report.path for report in scan_tree(str(tree), ["beside"])] == ["beside"]


def test_a_cache_of_the_hub_is_clean_from_every_level(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--o--n" / "snapshots" / "c0ffee"
    blobs = tmp_path / "models--o--n" / "blobs"
    (snapshot / "sub").mkdir(parents=True)
    blobs.mkdir()
    (blobs / "aaa").write_bytes(b"{}")
    (snapshot / "config.json").symlink_to("../../blobs/aaa")
    (snapshot / "sub" / "config.json").symlink_to("../../../blobs/aaa")
    for root in (tmp_path, tmp_path / "models--o--n", snapshot):
        assert {r.verdict for r in Walk([str(root)]).reports()} == {"clean"}, root
    (snapshot / "escape").symlink_to("../../../other")
    assert "suspicious" in {r.verdict for r in Walk([str(snapshot)]).reports()}
