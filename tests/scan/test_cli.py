"""The command as it is called: options, files that it writes, what goes to which stream, and what it imports."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Akit, environment

EVIL = b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00echo\x85R."
UNKNOWN = b"\x80\x02cours.models\nNet\n)\x81."
GOOD = b"\x80\x02}."
NEXT_YEAR = datetime.date.today().replace(day=1, month=1) + datetime.timedelta(days=800)


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> Path:
    for name, data in (("evil.pkl", EVIL), ("unknown.pkl", UNKNOWN), ("good.pkl", GOOD), ("cut.pkl", b"\x80\x04\x95")):
        (tmp_path / name).write_bytes(data)
    return tmp_path


def entry(key: str, value: str, expires: datetime.date = NEXT_YEAR) -> str:
    return f'[[scan.allow]]\n{key} = "{value}"\nreason = "known"\nexpires = {expires}\n'


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["good.pkl"], 0), (["evil.pkl"], 1), (["unknown.pkl"], 1), (["unknown.pkl", "--fail-on", "malicious"], 0),
        (["evil.pkl", "--fail-on", "malicious"], 1), (["nowhere"], 3), (["nowhere", "evil.pkl"], 1),
        (["nowhere", "good.pkl"], 3), ([], 2), (["good.pkl", "--policy", "nowhere.toml"], 2),
        (["good.pkl", "--baseline", "nowhere.json"], 2), (["good.pkl", "--output-format", "xml"], 2),
        (["--explain", "pickle-unsafe-name"], 0), (["--explain", "pickle-unsafe-nam"], 2), (["--", "good.pkl"], 0),
        (["good.pkl", "--output-file", "no/where.json"], 5), (["good.pkl", "--output-file", "evil.pkl"], 2),
    ],
)  # fmt: skip
def test_exit_codes(akit: Akit, args: list[str], code: int) -> None:
    done = akit("scan", *args)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_cannot_be_read_is_exit_3(akit: Akit, tmp_path: Path) -> None:
    (tmp_path / "gone.pkl").symlink_to("nowhere")
    assert akit("scan", "gone.pkl").returncode == 3
    assert akit("scan", "gone.pkl", "evil.pkl").returncode == 1


def test_one_bad_file_ends_nothing(akit: Akit) -> None:
    document = json.loads(akit("scan", ".", "--json").stdout)
    verdicts = {file["path"]: file["verdict"] for file in document["files"]}
    assert verdicts["evil.pkl"] == "malicious"
    assert verdicts["good.pkl"] == "clean"
    assert verdicts["unknown.pkl"] == "suspicious"
    assert verdicts["cut.pkl"] != "clean"
    assert document["counts"]["malicious"] == 1
    assert document["ok"] is False and document["exit_code"] == 1


def test_the_document_of_json(akit: Akit) -> None:
    done = akit("scan", "evil.pkl", "nowhere", "--json")
    document = json.loads(done.stdout)
    assert document == json.loads(akit("scan", "evil.pkl", "nowhere", "--output-format", "json").stdout)
    assert document["schema"] == "artifactkit/scan/1" and document["command"] == "scan"
    assert [error["code"] for error in document["errors"]] == ["unreadable"]
    (file,) = document["files"]
    assert file.keys() == {"path", "format", "verdict", "size", "findings", "inventory"}
    finding = file["findings"][0]
    assert finding.keys() == {
        "rule", "severity", "what", "why", "hint", "member", "offset", "name", "allowed"
    }  # fmt: skip
    assert finding["name"] == "os.system"
    assert json.loads(akit("scan", "good.pkl", "--policy", "no.toml", "--json").stdout)["errors"][0]["code"] == "usage"


@pytest.mark.parametrize("form", ["text", "json", "sarif", "github"])
def test_a_report_in_a_file(akit: Akit, tmp_path: Path, form: str) -> None:
    done = akit("scan", "evil.pkl", "--output-format", form, "--output-file", "out")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "the report is in out" in done.stderr
    written = (tmp_path / "out").read_text()
    assert written == akit("scan", "evil.pkl", "--output-format", form).stdout
    # Nothing is overwritten unasked, and then as a whole.
    again = akit("scan", "good.pkl", "--output-format", form, "--output-file", "out")
    assert again.returncode == 2 and (tmp_path / "out").read_text() == written
    assert akit("scan", "good.pkl", "--output-format", form, "--output-file", "out", "--force", "-q").returncode == 0
    assert (tmp_path / "out").read_text() != written
    assert {path.name for path in tmp_path.iterdir()} == {"evil.pkl", "unknown.pkl", "good.pkl", "cut.pkl", "out"}


def test_a_report_on_a_device(akit: Akit) -> None:
    done = akit("scan", "evil.pkl", "--output-file", "/dev/stdout", "-q")
    assert done.stdout.startswith("evil.pkl @")
    assert akit("scan", "evil.pkl", "--output-file", "/dev/full", "-q").returncode == 5


def test_quiet_prints_findings_only(akit: Akit) -> None:
    done = akit("scan", "good.pkl", "-q")
    assert done.stdout == done.stderr == ""
    assert len(akit("scan", "evil.pkl", "good.pkl", "-q").stdout.splitlines()) == 1


def test_what_a_policy_allows_is_still_listed(akit: Akit, tmp_path: Path) -> None:
    (tmp_path / "artifactkit.toml").write_text(entry("name", "ours.models.Net"))
    done = akit("scan", "unknown.pkl")
    assert done.returncode == 0
    assert "suspicious (allowed: known): pickle-unknown-name: ours.models.Net" in done.stdout
    assert "1 finding allowed" in done.stdout
    document = json.loads(akit("scan", "unknown.pkl", "--json").stdout)
    assert document["ok"] and document["files"][0]["findings"][0]["allowed"] == "known"
    assert document["policies"] == ["artifactkit.toml"]
    assert akit("scan", "unknown.pkl", "--policy", "none").returncode == 1


def test_a_policy_deeper_in_a_tree_is_not_asked(akit: Akit, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "artifactkit.toml").write_text(entry("name", "ours.models.Net"))
    (tmp_path / "sub" / "unknown.pkl").write_bytes(UNKNOWN)
    assert akit("scan", "sub").returncode == 1
    assert akit("scan", ".", cwd=tmp_path / "sub").returncode == 0


def test_an_expired_entry_is_told(akit: Akit, tmp_path: Path) -> None:
    (tmp_path / "artifactkit.toml").write_text(entry("name", "ours.models.Net", datetime.date(2020, 1, 1)))
    done = akit("scan", "unknown.pkl", "--json")
    assert done.returncode == 1
    assert "artifactkit.toml, line 1: name ours.models.Net expired on 2020-01-01" in done.stderr
    assert json.loads(done.stdout)["expired"] == [
        {"entry": "name ours.models.Net", "source": "artifactkit.toml", "line": 1, "expires": "2020-01-01"}
    ]


def test_malicious_is_allowed_by_digest_only(akit: Akit, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(entry("name", "os.system"))
    done = akit("scan", "evil.pkl", "--policy", "p.toml")
    assert done.returncode == 1 and "sha256" in done.stdout
    (tmp_path / "p.toml").write_text(entry("sha256", hashlib.sha256(EVIL).hexdigest()))
    assert akit("scan", "evil.pkl", "--policy", "p.toml").returncode == 0


def test_a_baseline_blocks_what_is_new_only(akit: Akit, tmp_path: Path) -> None:
    done = akit("scan", ".", "--write-baseline", "base.json")
    assert done.returncode == 0, done.stdout + done.stderr
    written = (tmp_path / "base.json").read_bytes()
    assert akit("scan", ".", "--baseline", "base.json", "-q").returncode == 0
    (tmp_path / "new.pkl").write_bytes(UNKNOWN)
    done = akit("scan", ".", "--baseline", "base.json", "--json")
    assert done.returncode == 1
    found = [(f["path"], x["allowed"]) for f in json.loads(done.stdout)["files"] for x in f["findings"]]
    assert [path for path, allowed in found if allowed is None] == ["new.pkl"]
    assert akit("scan", ".", "--write-baseline", "base.json").returncode == 2  # not unasked
    assert akit("scan", ".", "--baseline", "base.json", "--write-baseline", "base.json").returncode == 0
    assert (tmp_path / "base.json").read_bytes() != written
    assert akit("scan", ".", "--baseline", "base.json").returncode == 0


def test_explain(akit: Akit) -> None:
    done = akit("scan", "--explain", "pickle-unsafe-name")
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == [
        "pickle-unsafe-name", "the pickle asks for a name that runs code", "why", "hint",
    ]  # fmt: skip
    document = json.loads(akit("scan", "--explain", "pickle-unsafe-name", "--json").stdout)
    assert document["rule"]["id"] == "pickle-unsafe-name"
    assert "did you mean" in akit("scan", "--explain", "pickle-unsafe").stderr


def test_nothing_to_scan_is_said(akit: Akit, tmp_path: Path) -> None:
    (tmp_path / "void").mkdir()
    done = akit("scan", "void")
    assert done.returncode == 0
    assert "no files in void" in done.stderr
    assert "0 files scanned" in done.stdout


def test_a_reader_that_stops_and_an_interrupt(tmp_path: Path) -> None:
    command = f"{sys.executable} -m artifactkit scan . | true"
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("args", [["good.pkl"], ["evil.pkl"], ["."], ["good.pkl", "--json"]], ids=" ".join)
def test_what_is_imported(tmp_path: Path, args: list[str]) -> None:
    """The standard library and our own: a scan is to answer before a commit is made."""
    code = f"""
import sys
before = set(sys.modules)
import typer, typer.main, typer.core
typers = set(sys.modules)
from artifactkit.cli.main import main
main({["scan", *args]!r})
print(*sorted(set(sys.modules) - typers), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True
    )
    names = {name.partition(".")[0] for name in done.stderr.splitlines()[-1].split()}
    assert names <= sys.stdlib_module_names | {"artifactkit", "typer"}
    assert not names & {"tomllib", "subprocess", "unittest", "asyncio", "multiprocessing", "sqlite3", "ssl"}


def test_the_scan_stays_within_the_trusted_base(tmp_path: Path) -> None:
    code = """
import sys
from artifactkit.scan.walk import Walk
for report in Walk(["."]).reports():
    pass
print(*sorted(name for name in sys.modules if name.startswith("artifactkit")))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True
    )
    parts = {name.split(".")[1] for name in done.stdout.split() if "." in name}
    assert parts <= {"scan", "containers", "pickles", "errors", "files", "trees", "outside", "dtypes", "report"}


def test_the_judge_of_other_commands_is_the_same(tmp_path: Path) -> None:
    from artifactkit import judge
    from artifactkit.errors import Refused

    evil, good = str(tmp_path / "evil.pkl"), str(tmp_path / "good.pkl")
    assert judge.judge(evil) is judge.judge(evil)
    assert judge.judge(good).verdict == "clean"
    reports = judge.judge_source(str(tmp_path))
    assert judge.verdict(reports) == "malicious"
    with pytest.raises(Refused) as refused:
        judge.refuse_malicious(reports)
    assert refused.value.file == evil and "os.system" in str(refused.value)
    assert judge.refuse_malicious(reports, allow=True) == judge.said(reports) != []
    assert judge.refuse_malicious([judge.judge(good)]) == []
    (tmp_path / "good.pkl").write_bytes(EVIL)
    os.utime(good, ns=(1, 1))
    assert judge.judge(good).verdict == "malicious"  # it was written anew
    assert judge.judge(str(tmp_path / "nowhere")).verdict == "unreadable"
