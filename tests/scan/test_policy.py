"""What a policy and a baseline allow, and what they never do."""

from __future__ import annotations

import datetime
import hashlib
import json
import subprocess
from pathlib import Path

import pytest
from conftest import Akit
from hypothesis import given
from hypothesis import strategies as st

from artifactkit.errors import UsageError
from artifactkit.scan import baseline, policy
from artifactkit.scan.model import FileReport, Finding
from artifactkit.scan.policy_toml import parse

EVIL = b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00echo\x85R."
UNKNOWN = b"\x80\x02cours.models\nNet\n)\x81."
OTHER = b"\x80\x02cours.models\nOther\n)\x81."
TODAY = datetime.date(2030, 1, 1)
ENTRY = '[[scan.allow]]\nname = "ours.models.Net"\nreason = "ours"\nexpires = 2030-06-30\n'


def by_digest(data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    return f'[[scan.allow]]\nsha256 = "{digest}"\nreason = "looked at"\nexpires = 2030-06-30\n'


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("evil.pkl").write_bytes(EVIL)
    Path("net.pkl").write_bytes(UNKNOWN)
    return tmp_path


def allowed(text: str, data: bytes, name: str = "x.pkl", today: datetime.date = TODAY) -> str:
    """The verdict on a file under a policy."""
    from artifactkit.scan.scanner import scan_file

    Path(name).write_bytes(data)
    Path("p.toml").write_text(text)
    report = scan_file(name)
    policy.load(["p.toml"], today=today).apply(report)
    return report.verdict


@pytest.mark.parametrize(
    ("text", "data", "verdict"),
    [
        ("", UNKNOWN, "suspicious"),
        (ENTRY, UNKNOWN, "clean"),
        (ENTRY, OTHER, "suspicious"),
        (ENTRY.replace("name =", 'rule = "pickle-unknown-name"\nname ='), UNKNOWN, "clean"),
        (ENTRY.replace("name =", 'rule = "pickle-unsafe-name"\nname ='), UNKNOWN, "suspicious"),
        (ENTRY.replace("ours.models.Net", "ours.models"), UNKNOWN, "suspicious"),  # no prefix
        (ENTRY.replace("ours.models.Net", "Ours.models.Net"), UNKNOWN, "suspicious"),
        (ENTRY.replace('name = "ours.models.Net"', 'names = ["a.B", "ours.models.Net"]'), UNKNOWN, "clean"),
        (ENTRY.replace("ours.models.Net", "os.system"), EVIL, "malicious"),  # never by name
        (by_digest(EVIL), EVIL, "clean"),
        (by_digest(EVIL), EVIL + b" ", "malicious"),
        (by_digest(UNKNOWN), UNKNOWN, "clean"),
        (by_digest(UNKNOWN), OTHER, "suspicious"),
        (ENTRY.replace("2030-06-30", "2029-12-31"), UNKNOWN, "suspicious"),  # expired yesterday
        (ENTRY.replace("2030-06-30", "2030-01-01"), UNKNOWN, "clean"),  # today is the last day
    ],
)
def test_what_is_allowed(text: str, data: bytes, verdict: str) -> None:
    assert allowed(text, data) == verdict


def test_a_pointer_is_not_its_content() -> None:
    data = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12\n".encode()
    report = FileReport("pointer", findings=[Finding("content-absent", "unreadable", "pointer")])
    Path("pointer").write_bytes(data)
    Path("p.toml").write_text(by_digest(data))
    policy.load(["p.toml"], today=TODAY).apply(report)
    assert report.verdict == "unreadable"


def test_a_name_in_a_policy_is_told_where_it_does_not_count() -> None:
    report = FileReport("x", findings=[Finding("r", "malicious", "w", name="os.system", hint="do not")])
    Path("p.toml").write_text(ENTRY.replace("ours.models.Net", "os.system"))
    policy.load(["p.toml"], today=TODAY).apply(report)
    assert report.verdict == "malicious"
    assert "sha256" in (report.findings[0].hint or "")


REFUSED = [
    ("[scan\n", 1, 6, "not TOML"),
    ("[scan]\nallow = [\n", 3, 1, "not TOML"),
    ("scan = 1\n", 1, 1, "`scan` is a table"),
    ("[scan]\nallows = []\n", 2, 1, "no key 'allows'"),
    ("[scan]\npolicies = [1]\n", 2, 1, "list of strings"),
    ("[scan]\n  allow = 3\n", 2, 3, "list of tables"),
    ("[[scan.allow]]\nreason = 'x'\nexpires = 2030-01-01\n", 1, 1, "one of"),
    (ENTRY + "sha256 = '" + "0" * 64 + "'\n", 5, 1, "one of"),
    (ENTRY.replace('reason = "ours"\n', ""), 1, 1, "reason"),
    (ENTRY.replace('"ours"', '"  "'), 3, 1, "reason"),
    (ENTRY.replace("expires = 2030-06-30\n", ""), 1, 1, "date"),
    (ENTRY.replace("2030-06-30", '"2030-06-30"'), 4, 1, "date"),
    (ENTRY.replace("2030-06-30", "2030-06-30T00:00:00"), 4, 1, "date"),
    (ENTRY.replace("ours.models.Net", "ours.*"), 2, 1, "exact"),
    (ENTRY.replace("ours.models.Net", ""), 2, 1, "exact"),
    (ENTRY + "\n" + ENTRY.replace("name =", " nam ="), 7, 2, "no key 'nam'"),
    (by_digest(b"").replace("e3b0", "E3B0"), 2, 1, "64 hexadecimal"),
    (by_digest(b"") + "rule = 'x'\n", 5, 1, "rule"),
    ("[scan]\nallow = [{name = 'a.b', reason = 'x', expires = 3}]\n", 2, 39, "date"),
    ("\ufeff[scan]\n", 1, 1, "not TOML"),
]


@pytest.mark.parametrize(("text", "line", "column", "what"), REFUSED)
def test_a_mistake_is_refused_with_its_place(text: str, line: int, column: int, what: str) -> None:
    with pytest.raises(UsageError) as error:
        parse(text.encode(), "p.toml")
    assert what in error.value.what
    assert f"(line {line}, column {column})" in error.value.what
    assert error.value.file == "p.toml"


def test_bytes_that_are_no_text_are_refused_with_their_place() -> None:
    with pytest.raises(UsageError, match=r"not UTF-8 \(line 2, column 3\)"):
        parse(b"[scan]\n# \xff", "p.toml")


@given(
    st.text(max_size=60) | st.builds("".join, st.lists(st.sampled_from([*ENTRY.splitlines(True), "[scan]\n", "x=[["])))
)
def test_any_text_is_a_policy_or_is_refused(text: str) -> None:
    try:
        parse(text.encode("utf-8", "surrogatepass"), "p.toml")
    except UsageError as error:
        assert "(line " in error.what


def test_which_policies_are_asked(here: Path) -> None:
    assert policy.load(today=TODAY).sources == []
    Path("artifactkit.toml").write_text('[build]\nx = 1\n[scan]\npolicies = ["sklearn"]\n' + ENTRY)
    loaded = policy.load(today=TODAY)
    assert loaded.sources[0] == "artifactkit.toml"
    assert loaded.sources[1].startswith("sklearn (version ")
    assert policy.load(["none"], today=TODAY).sources == []
    Path("p.toml").write_text(ENTRY)
    assert policy.load(["p.toml"], today=TODAY).sources == ["p.toml"]
    assert len(policy.load(["lightning"], today=TODAY).sources) == 3  # in addition to the file here
    for wrong in ("sklearnx", "nowhere.toml", "."):
        with pytest.raises(UsageError):
            policy.load([wrong], today=TODAY)


@pytest.mark.parametrize("name", policy.shipped())
def test_shipped_policies_are_exact_and_versioned(name: str) -> None:
    data = (Path(policy.SHIPPED) / f"{name}.toml").read_bytes()
    document = parse(data, name, shipped=True)
    assert document.version
    names = [n for entry in document.entries for n in entry.names]
    assert names
    for entry in document.entries:
        assert entry.rule is not None, "a shipped entry is for one rule"
        assert list(entry.names) == sorted(set(entry.names))
    assert all(n.isascii() and "." in n and all(part.isidentifier() for part in n.split(".")) for n in names)


def test_shipped_policies_name_nothing_that_is_malicious() -> None:
    from artifactkit.scan.scanner import scan_file

    for name in policy.shipped():
        document = parse((Path(policy.SHIPPED) / f"{name}.toml").read_bytes(), name, shipped=True)
        for full in sorted({n for entry in document.entries for n in entry.names}):
            module, _, attribute = full.rpartition(".")
            Path("x.pkl").write_bytes(f"c{module}\n{attribute}\n.".encode())
            report = scan_file("x.pkl")
            assert report.verdict == "suspicious", f"{name}: {full} is {report.verdict}"


# -- from a revision of git


def git(*args: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", *args]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(here: Path) -> Path:
    git("init", "-q", "-b", "main")
    Path("artifactkit.toml").write_text(ENTRY)
    git("add", "-A")
    git("commit", "-q", "-m", "base")
    git("checkout", "-q", "-b", "change")
    return here


def test_what_a_change_allows_is_a_finding_and_does_not_count(repository: Path, akit: Akit) -> None:
    Path("other.pkl").write_bytes(OTHER)
    more = ENTRY.replace("models.Net", "models.Other").replace("2030", "2999")
    Path("artifactkit.toml").write_text(ENTRY.replace("2030", "2998") + more)
    assert akit("scan", "other.pkl").returncode == 0  # by the policy here it is allowed
    done = akit("scan", "other.pkl", "--policy-ref", "main", "--json")
    assert done.returncode == 1
    files = {f["path"]: f for f in json.loads(done.stdout)["files"]}
    assert files["other.pkl"]["verdict"] == "suspicious"
    assert [f["rule"] for f in files["artifactkit.toml"]["findings"]] == ["policy-changed"] * 2  # a later date, a name
    assert "line 5" in files["artifactkit.toml"]["findings"][1]["what"]


def test_a_policy_that_is_unchanged_or_stricter_is_no_finding(repository: Path) -> None:
    for text in (ENTRY, ENTRY.replace('"ours"', '"in other words"'), ""):
        Path("artifactkit.toml").write_text(text)
        loaded = policy.load(ref="main", today=TODAY)
        assert loaded.changed == []
        assert len(loaded.entries) == 1
    Path("artifactkit.toml").unlink()
    assert policy.load(ref="main", today=TODAY).changed == []


def test_a_policy_that_is_new_is_a_finding_as_a_whole(repository: Path) -> None:
    git("rm", "-q", "--cached", "artifactkit.toml")
    git("commit", "-q", "-m", "gone")
    Path("artifactkit.toml").write_text('[scan]\npolicies = ["sklearn"]\n' + ENTRY)
    loaded = policy.load(ref="HEAD", today=TODAY)
    assert loaded.entries == []
    assert [f.what for f in loaded.changed[0].findings] == [
        "line 3 newly allows name ours.models.Net", "the shipped policy sklearn is newly asked for",
    ]  # fmt: skip


def test_a_policy_in_a_folder_of_the_repository(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("sub").mkdir()
    monkeypatch.chdir("sub")
    assert policy.load(ref="main", today=TODAY).entries == []  # the one of the current folder, not of its parent
    assert len(policy.load(["../artifactkit.toml"], ref="main", today=TODAY).entries) == 1


@pytest.mark.parametrize("ref", ["nowhere", "--help", "", "main:artifactkit.toml", "a\0b"])
def test_a_revision_that_is_none_is_refused(repository: Path, ref: str) -> None:
    with pytest.raises(UsageError):
        policy.load(ref=ref, today=TODAY)


def test_without_git_there_is_no_revision(here: Path) -> None:
    with pytest.raises(UsageError):
        policy.load(ref="main", today=TODAY)


# -- baselines


def reports() -> list[FileReport]:
    return [
        FileReport("a.pkl", findings=[
            Finding("unknown", "suspicious", "x", offset=3, name="a.B"), Finding("odd", "suspicious", "y", member="m"),
            Finding("odd", "suspicious", "z", member="m"),
        ]),
        FileReport("evil.pkl", findings=[Finding("unsafe", "malicious", "x", name="os.system")]),
    ]  # fmt: skip


def known() -> baseline.Baseline:
    return baseline.Baseline.of(json.loads(json.dumps(baseline.records(reports()))))


def open_findings(found: list[FileReport]) -> list[str]:
    base = known()
    for report in found:
        base.apply(report)
    return [f.rule for report in found for f in report.findings if f.allowed is None]


def test_what_is_in_the_baseline_does_not_block() -> None:
    assert open_findings(reports()) == []
    moved = reports()
    moved[0].findings[0] = Finding("unknown", "suspicious", "said in other words", offset=99, name="a.B")
    assert open_findings(moved) == []


@pytest.mark.parametrize(
    ("index", "finding"),
    [
        (0, Finding("unknown", "suspicious", "x", name="a.C")),
        (0, Finding("other", "suspicious", "x", name="a.B")),
        (0, Finding("unknown", "suspicious", "x", name="a.B", member="m")),
        (0, Finding("odd", "suspicious", "a third of a kind", member="m")),
        (0, Finding("odd", "malicious", "worse than it was", member="m")),
        (1, Finding("unsafe", "malicious", "x", name="os.popen")),
    ],
)
def test_what_is_new_blocks(index: int, finding: Finding) -> None:
    found = reports()
    found[index].findings.append(finding)
    assert open_findings(found) == [finding.rule]


def test_a_malicious_finding_is_known_in_the_same_bytes_only() -> None:
    base = known()
    Path("evil.pkl").write_bytes(EVIL.replace(b"echo", b"true"))
    report = reports()[1]
    base.apply(report)
    assert report.verdict == "malicious"


def test_a_finding_in_another_file_is_new() -> None:
    found = reports()[:1]
    found[0].path = "b.pkl"
    assert len(open_findings(found)) == 3


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "x", "findings": []}', '{"schema": 1}', "\udcff",
                                  '{"schema": "artifactkit/scan-baseline/1", "findings": [{}]}',
                                  '{"schema": "artifactkit/scan-baseline/1", "findings": 3}'])  # fmt: skip
def test_what_is_no_baseline_is_refused(text: str) -> None:
    Path("b.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError):
        baseline.load("b.json")


def test_fingerprints_keep_parts_apart() -> None:
    pairs = [("ab", "c"), ("a", "bc"), ("abc", ""), ("", "abc")]
    prints = {baseline.fingerprint("p", Finding(a, "suspicious", "x", name=b or None)) for a, b in pairs}
    assert len(prints) == 4
    assert baseline.fingerprint("p", Finding("r", "suspicious", "x", name="\ud800")) != baseline.fingerprint(
        "p", Finding("r", "suspicious", "x", name="\\ud800")
    )


def test_relative_paths() -> None:
    assert baseline.relative("a/../b.pkl", "/x") != "b.pkl"
    assert baseline.relative("/x/y/b.pkl", "/x") == "y/b.pkl"
    assert baseline.relative("/xy/b.pkl", "/x") == "/xy/b.pkl"
    assert baseline.relative("/b.pkl", "/") == "b.pkl"
    assert baseline.relative("./b.pkl") == "b.pkl"
