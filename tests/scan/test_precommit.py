"""Where the scan runs by itself: the hooks of pre-commit, the GitHub action, the snippet for GitLab."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, environment

EVIL = b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00echo\x85R."
GOOD = b"\x80\x02}."


def load(path: Path) -> Any:
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def hook(name: str) -> Any:
    (found,) = (hook for hook in load(ROOT / ".pre-commit-hooks.yaml") if hook["id"] == name)
    return found


@pytest.mark.parametrize(
    ("path", "matches"),
    [
        ("model.pt", True), ("a/b/pytorch_model.bin", True), ("x.pth.tar", True), ("X.PKL", True),
        ("m.safetensors", True), ("model.onnx", True), ("q4.gguf", True), ("weights.h5", True), ("config.json", True),
        ("a/tokenizer_config.json", True),
        ("adapter_config.json", True), ("model.safetensors.index.json", True), ("chat_template.jinja", True),
        ("Modelfile", True), ("lib/libx.so.1.2", True), ("sitecustomize.py", True), ("data.npz", True), ("x.7z", True),
        ("train.py", False), ("README.md", False), ("package.json", False), ("so.txt", False), ("binary", False),
        ("model.pt.md", False), ("apt", False),
    ],
)  # fmt: skip
def test_which_files_the_hook_takes(path: str, matches: bool) -> None:
    assert bool(re.search(hook("artifactkit-scan")["files"], path)) is matches


def test_the_hooks() -> None:
    assert hook("artifactkit-scan")["types"] == ["file"]
    assert hook("artifactkit-scan")["args"] == ["--"]  # a file called -q is a file
    repository = hook("artifactkit-scan-repo")
    assert repository["always_run"] is True and repository["pass_filenames"] is False
    for name in ("artifactkit-scan", "artifactkit-scan-repo"):
        assert hook(name)["language"] == "python"
        assert hook(name)["entry"].startswith("artifactkit scan")


def git(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment())


@pytest.mark.slow
def test_the_hooks_in_the_real_program(tmp_path: Path) -> None:
    """pre-commit installs us from a repository, as it does for everybody; it needs the package index for that."""
    ours = tmp_path / "ours"
    ours.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", ".pre-commit-hooks.yaml"):
        shutil.copy(ROOT / name, ours / name)
    shutil.copytree(ROOT / "artifactkit", ours / "artifactkit", ignore=shutil.ignore_patterns("__pycache__"))
    git(ours, "init", "-q")
    git(ours, "add", "-A")
    assert git(ours, "commit", "-q", "-m", "all").returncode == 0
    revision = git(ours, "rev-parse", "HEAD").stdout.strip()

    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    pip = [
        str(tmp_path / "venv/bin/python"),
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "pre-commit>=4,<5",
    ]
    subprocess.run(pip, check=True, timeout=600)

    work = tmp_path / "work"
    work.mkdir()
    git(work, "init", "-q")
    (work / ".pre-commit-config.yaml").write_text(
        f"repos:\n- repo: file://{ours}\n  rev: {revision}\n"
        "  hooks:\n  - id: artifactkit-scan\n    args: [--policy, sklearn, --]\n  - id: artifactkit-scan-repo\n"
    )

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        there = environment() | {"PRE_COMMIT_HOME": str(tmp_path / "home")}
        there.pop("PYTHONPATH")
        return subprocess.run(
            [str(tmp_path / "venv/bin/pre-commit"), *args], cwd=work, env=there, capture_output=True, text=True,
            check=False, timeout=900,
        )  # fmt: skip

    (work / "good.pkl").write_bytes(GOOD)
    (work / "-q.pkl").write_bytes(GOOD)  # a name that looks like an option
    git(work, "add", "-A")
    first = run("run")
    assert first.returncode == 0, first.stdout + first.stderr
    assert first.stdout.count("Passed") == 2
    began = time.monotonic()
    second = run("run")
    assert second.returncode == 0
    assert time.monotonic() - began < 10  # environments are there now; how fast it is, the benchmark says

    assert run("install").returncode == 0
    there = environment() | {"PRE_COMMIT_HOME": str(tmp_path / "home")}
    there.pop("PYTHONPATH")
    commit = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", "commit", "-q", "-m", "x"]
    done = subprocess.run(commit, cwd=work, env=there, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (work / "evil.bin").write_bytes(EVIL)
    git(work, "add", "-A")
    done = subprocess.run(commit, cwd=work, env=there, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "evil.bin @2: malicious: pickle-unsafe-name: os.system" in done.stdout + done.stderr
    assert git(work, "rev-list", "--count", "HEAD").stdout.strip() == "1"


# -- the action


def test_the_action_is_valid_by_its_schema() -> None:
    checker = pytest.importorskip("check_jsonschema")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-actions", "action.yml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{checker.__name__}: {done.stdout}{done.stderr}"


def test_no_input_is_put_into_a_script() -> None:
    """An expression in a script is text that the shell runs; inputs come by the environment."""
    action = load(ROOT / "action.yml")
    for step in action["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
        assert ("run" in step) == ("shell" in step)
    used = {name for step in action["runs"]["steps"] for name in re.findall(r"inputs\.([\w-]+)", str(step))}
    assert used == set(action["inputs"])


@pytest.fixture
def runner(tmp_path: Path) -> Any:
    """Runs the action's scan step as a runner does, with the program where the install step puts it."""
    program = tmp_path / "temp" / "artifactkit" / "bin" / "artifactkit"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m artifactkit "$@"\n')
    program.chmod(0o755)
    action = load(ROOT / "action.yml")
    scan, verdict = (step for step in action["runs"]["steps"] if step.get("name") in ("Scan", "Verdict"))
    work = tmp_path / "work"
    work.mkdir()

    def run(**inputs: str) -> tuple[int, dict[str, str], str]:
        given = {name: str(value["default"]) for name, value in action["inputs"].items()} | {
            name.replace("_", "-"): value for name, value in inputs.items()
        }
        values = {
            name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda match: given[match[1]], text)
            for name, text in scan["env"].items()
        }
        output = tmp_path / "output"
        output.write_text("")
        there = environment() | values | {"RUNNER_TEMP": str(tmp_path / "temp"), "GITHUB_OUTPUT": str(output)}
        shell = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c"]
        done = subprocess.run([*shell, scan["run"]], cwd=work, env=there, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr  # the report is uploaded before the job fails
        outputs = dict(line.split("=", 1) for line in output.read_text().splitlines())
        end = subprocess.run([*shell, verdict["run"]], env={**os.environ, "CODE": outputs["exit-code"]}, check=False)
        return end.returncode, outputs, done.stdout

    return run


def test_the_action_scans(runner: Any, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "good.pkl").write_bytes(GOOD)
    code, outputs, log = runner()
    assert code == 0 and Path(outputs["sarif-file"]).is_file() and "::error" not in log
    (work / "evil.pkl").write_bytes(EVIL)
    code, outputs, log = runner()
    assert code == 1 and outputs["exit-code"] == "1"
    assert "::error file=evil.pkl,line=1," in log
    assert "pickle-unsafe-name" in Path(outputs["sarif-file"]).read_text()
    assert runner(path="good.pkl")[0] == 0
    assert runner(path="good.pkl\nevil.pkl")[0] == 1
    assert runner(path="$(touch hacked)")[0] == 3
    code, outputs, _ = runner(policy="nowhere.toml")
    assert code == 2
    assert not (work / "hacked").exists()


def test_the_action_takes_the_policy_of_the_base(runner: Any, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "net.pkl").write_bytes(b"\x80\x02cours.models\nNet\n)\x81.")
    git(work, "init", "-q", "-b", "main")
    git(work, "commit", "-q", "--allow-empty", "-m", "base")
    (work / "artifactkit.toml").write_text(
        '[[scan.allow]]\nname = "ours.models.Net"\nreason = "x"\nexpires = 9999-01-01\n'
    )
    assert runner()[0] == 0
    code, _, log = runner(policy_ref="main")
    assert code == 1
    assert "policy-changed" in log


@pytest.mark.parametrize(("first", "schema"), [("name: scan", "github-workflows"), ("artifactkit-scan:", "gitlab-ci")])
def test_the_snippets_are_valid_by_their_schemas(tmp_path: Path, first: str, schema: str) -> None:
    pytest.importorskip("check_jsonschema")
    from sessions import blocks

    page = (ROOT / "docs" / "scan.md").read_text(encoding="utf-8")
    (snippet,) = (b for b in blocks(page) if b.language == "yaml" and b.lines[0] == first)
    path = tmp_path / "snippet.yml"
    path.write_text("\n".join(snippet.lines) + "\n")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(path)]
    if schema == "gitlab-ci":
        command[3:3] = ["--data-transform", "gitlab-ci"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
