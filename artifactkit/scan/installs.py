"""Files that have something installed, built or started: requirements, pyproject, Modelfile, notebooks, git hooks."""

from __future__ import annotations

import json
import re

from .. import outside
from ..errors import Corrupt, LimitExceeded
from .model import Rule
from .piece import Piece

REQUIREMENT = Rule(
    "requirements-from-elsewhere",
    "suspicious",
    "a requirements file takes packages from an unusual place",
    "installing a package runs its code; what an address gives can change from day to day",
    "install the same packages, by name and with hashes, from an index that you trust",
)
MODELFILE = Rule(
    "modelfile-path",
    "suspicious",
    "a Modelfile takes a model or adapter from outside of its folder",
    "ollama create reads that file, whatever it is",
    "put the file beside the Modelfile",
)
NOTEBOOK = Rule(
    "notebook-downloads-and-runs",
    "suspicious",
    "a notebook runs a program that it downloads, or code that it hides",
    "running its cells runs what the address gives on that day, or what nobody has read",
    "read it, and do not run that cell",
)
GIT_HOOK = Rule(
    "git-hook",
    "suspicious",
    "a git hook comes with the files",
    "git runs it at the next commit, checkout or merge; git itself never copies hooks from another repository",
    "delete it, or clone the repository again",
)
GIT_CONFIG = Rule(
    "git-config-runs",
    "suspicious",
    "a git configuration that comes with the files has git run a program",
    "even git status, or a prompt that shows the branch, runs it",
    "clone the repository again",
)
RULES = (REQUIREMENT, MODELFILE, NOTEBOOK, GIT_HOOK, GIT_CONFIG)

MAX_TEXT = 8 << 20
MAX_FINDINGS = 200  # of one file: more say nothing new
ADDRESS = re.compile(r"(?<![a-z+])(?:[a-z]{1,10}\+)?[a-z]{1,10}://[^\s\"']+")
HOSTS = frozenset({
    "pypi.org", "files.pythonhosted.org", "test.pypi.org", "download.pytorch.org", "github.com", "gitlab.com",
    "huggingface.co", "pypi.nvidia.com", "pypi.ngc.nvidia.com", "storage.googleapis.com", "data.pyg.org",
    "flashinfer.ai", "wheels.vllm.ai", "abetlen.github.io", "developer.download.nvidia.com", "repo.radeon.com",
    "gitee.com", "bitbucket.org", "codeload.github.com", "raw.githubusercontent.com", "objects.githubusercontent.com",
    "modelscope.oss-cn-beijing.aliyuncs.com", "mirrors.aliyun.com", "pypi.tuna.tsinghua.edu.cn", "pypi.org.",
})  # fmt: skip
OLLAMA_BLOB = re.compile(r".*[/\\]blobs[/\\]sha256[-:][0-9a-f]{64}")
PIPE_TO_SHELL = re.compile(
    r"\b(?:curl|wget)\b[^\n|;&]{0,200}\|\s*(?:sudo\s+)?(?:ba|z|da)?sh\b"
    r"|\b(?:ba)?sh\s+(?:-c\s+)?[\"']?(?:<\(|\$\()\s*(?:curl|wget)\b"
)
RUNS_TEXT = re.compile(r"\b(?:exec|eval|loads)\s*\(")
MAGIC = re.compile(r"^([ \t]*)[!%].*$", re.MULTILINE)
# Values of these run programs (git-config(1)).
CONFIG_RUNS = re.compile(
    r"^\s*(fsmonitor|sshcommand|hookspath|pager|editor|askpass|gitproxy|external|textconv|command|clean|smudge|process"
    r"|driver|program|helper|cmd|uploadpack|receivepack|[\w-]+)\s*=\s*(.*)$", re.IGNORECASE)  # fmt: skip
GIT_SECTION = re.compile(r'\[\s*([\w.-]+)(?:\s+"(?:[^"\\]|\\.)*")?\s*\]')
# Switches, folders of hooks that the tree itself shows (husky), and ssh with nothing but options (actions/checkout).
ORDINARY_CORE = re.compile(
    r"|true|false|/dev/null|\.husky(?:/_)?|\.githooks|\.git/hooks"
    r"|\\?\"?(?:/usr/bin/)?ssh\\?\"?(?: (?!-[oF] ?\S*(?i:command|exec|include))[^;&|`$()<> ]+)*", re.IGNORECASE,
)  # fmt: skip
# The hooks that pre-commit and Git LFS install, line by line.
HOOK_LINE = re.compile(
    r"\s*|#[^\n]*|INSTALL_PYTHON=[\w./+-]+|ARGS=\([\w./ =-]+\)|HERE=\"\$\(cd \"\$\(dirname \"\$0\"\)\" && pwd\)\""
    r"|ARGS\+=\(--hook-dir \"\$HERE\" -- \"\$@\"\)|if \[ -x \"\$INSTALL_PYTHON\" \]; then|else|fi|\s*exit 1"
    r"|\s*exec \"\$INSTALL_PYTHON\" -mpre_commit \"\$\{ARGS\[@\]\}\"|elif command -v pre-commit > /dev/null; then"
    r"|\s*exec pre-commit \"\$\{ARGS\[@\]\}\"|\s*echo '`pre-commit` not found\.  "
    r"Did you forget to activate your virtualenv\?' 1>&2"
    r"|command -v git-lfs >/dev/null 2>&1 \|\| \{ (?:echo|printf) >&2 \"[^\"$`]*\"(?: \"[^\"$`]*\")?; exit 2; \}"
    r"|git lfs (?:pre-push|post-checkout|post-commit|post-merge) \"\$@\""
)
RUNNING_KEYS = frozenset({"fsmonitor", "sshcommand", "hookspath", "askpass", "gitproxy", "external", "textconv"})
FILTERS = ("clean", "smudge", "process")
ORDINARY_FILTERS = ("git-lfs ", "git lfs ", "git-annex ", "git annex ", "nbstripout", "git-xet ", "git xet ")


def text_of(piece: Piece) -> str:
    if piece.size > MAX_TEXT:
        raise LimitExceeded("a text file out of proportion", expected=f"at most {MAX_TEXT} bytes", found=piece.size)
    return piece.data.read(0, piece.size).decode("utf-8-sig", "replace")


def scan(piece: Piece, kind: str) -> None:
    match kind:
        case "requirements":
            _requirements(piece)
        case "pyproject":
            piece.runs(
                f"{piece.name}: a Python project with its build",
                "pip install of this folder runs the build backend that it names",
                "do not install the folder",
            )
        case "modelfile":
            _modelfile(piece)
        case "notebook":
            _notebook(piece)
        case "git-hook":
            _hook(piece)
        case "git-config":
            _git_config(piece)


def _requirements(piece: Piece) -> None:
    if b"\0" in piece.first:
        return
    piece.runs(
        f"{piece.name}: packages to be installed",
        "pip install -r, and services that install it for you",
        "install what you need by name, with hashes",
    )
    for number, line in enumerate(text_of(piece).splitlines(), 1):
        line = line.partition(" #")[0].strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("--trusted-host"):
            piece.find(REQUIREMENT, f"line {number}: {line[:120]} turns off the check of certificates")
        for found in ADDRESS.finditer(line):
            if len(piece.report.findings) > MAX_FINDINGS:
                return
            scheme, _, rest = found.group().partition("://")
            host = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2].partition(":")[0].lower()
            if scheme.endswith(("http", "file")) or host not in HOSTS:
                piece.find(REQUIREMENT, f"line {number}: {found.group()[:150]}", name=found.group()[:150])


def _modelfile(piece: Piece) -> None:
    if b"\0" in piece.first:
        return
    inside = False  # of a block of text, in three quotes
    for number, line in enumerate(text_of(piece).splitlines(), 1):
        quotes = line.count('"""')
        if inside or not line.strip():
            inside ^= quotes % 2 == 1
            continue
        inside = quotes % 2 == 1
        command, value = [*line.split(None, 1), ""][:2]
        value = value.strip().strip("\"'")
        if command.upper() not in ("FROM", "ADAPTER", "DRAFT") or not value or OLLAMA_BLOB.fullmatch(value):
            continue
        if value.lower().startswith(("hf.co/", "huggingface.co/", "https://hf.co/", "https://huggingface.co/")):
            continue
        problem = outside.by_name(value).problem
        if problem and len(piece.report.findings) <= MAX_FINDINGS:
            piece.find(MODELFILE, f"line {number}: {command.upper()} {value[:150]}: {problem}", name=value[:150])


def _notebook(piece: Piece) -> None:
    if not piece.size:
        return
    try:
        document = json.loads(text_of(piece))
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"not a notebook: {error or 'nested too deeply'}") from None
    cells = document.get("cells") if isinstance(document, dict) else None
    for worksheet in document.get("worksheets", []) if isinstance(document, dict) else []:
        cells = (cells or []) + (worksheet.get("cells", []) if isinstance(worksheet, dict) else [])
    commands: list[str] = []
    for cell in cells if isinstance(cells, list) else []:
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = cell.get("source", cell.get("input", ""))
        text = "".join(s for s in source if isinstance(s, str)) if isinstance(source, list) else str(source)
        commands += [line.strip() for line in text.splitlines() if line.lstrip().startswith(("!", "%%bash", "%%sh"))]
        if PIPE_TO_SHELL.search(text):
            piece.find(NOTEBOOK, f"a cell runs {PIPE_TO_SHELL.search(text).group()[:120]}")  # type: ignore[union-attr]
        if RUNS_TEXT.search(text):
            _cell(piece, text)
    shown = f", with commands ({commands[0][:60]!r} ...)" if commands else ""
    piece.runs(f"a notebook{shown}", "whoever runs its cells", "read it without running it")


def _cell(piece: Piece, text: str) -> None:
    """Code that a cell fetches or decodes, and runs; lines of magic are no Python, and stand for nothing."""
    from .python_calls import FETCHERS, Danger, at_import

    for call in at_import(MAGIC.sub(r"\1pass", text).encode("utf-8", "replace")) or ():
        if call.danger is Danger.HIDDEN or any(name in call.what for name in FETCHERS):
            piece.find(NOTEBOOK, f"a cell {call.what}", name=call.name)


def _hook(piece: Piece) -> None:
    name = piece.name
    if name.endswith(".sample") or not piece.size:
        return
    text = piece.first.decode("utf-8", "replace")
    piece.runs(f"git hook {name}", "git, at the event of that name", "git -c core.hooksPath=/dev/null ...")
    if piece.size <= len(piece.first) and all(HOOK_LINE.fullmatch(line) for line in text.splitlines()):
        return
    piece.find(GIT_HOOK, f"the hook {name}")


def _git_config(piece: Piece) -> None:
    section = ""
    for number, line in enumerate(text_of(piece).splitlines(), 1):
        bare = line.strip()
        head = GIT_SECTION.match(bare)
        if head:
            section, bare = head[1].lower(), bare[head.end() :].strip()
        found = CONFIG_RUNS.match(bare)
        if not found:
            continue
        key, value = found[1].lower(), found[2].strip().strip('"')
        runs = (
            (section == "core" and key in RUNNING_KEYS and not ORDINARY_CORE.fullmatch(value))
            or (section == "diff" and key in ("external", "textconv", "command"))
            or (section == "filter" and key in FILTERS and not value.startswith(ORDINARY_FILTERS))
            or (section == "merge" and key == "driver")
            or (section == "credential" and key == "helper" and value.startswith("!"))
        )
        if runs and value:
            piece.find(GIT_CONFIG, f"line {number}: {section}.{key} = {value[:120]}", name=f"{section}.{key}")
