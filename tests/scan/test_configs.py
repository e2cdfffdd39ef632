"""Configurations in a scan; YAML read as PyYAML reads it; patterns of tokenizers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from artifactkit.scan import yaml_tags
from artifactkit.scan.model import FileReport
from artifactkit.scan.python_names import TARGETS, YAML_DATA, is_dangerous
from artifactkit.scan.regexes import is_exponential
from artifactkit.scan.scanner import scan_file


def scan(folder: Path, name: str, content: object) -> FileReport:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return scan_file(str(path))


def test_own_code_is_inventory_and_foreign_code_a_finding(tmp_path: Path) -> None:
    own = scan(tmp_path, "config.json", {"auto_map": {"AutoModel": "modeling_x.Net"}})
    assert own.verdict == "clean"
    assert any("modeling_x.Net" in e.what and "trust_remote_code" in e.runs for e in own.inventory)
    other = scan(tmp_path, "config.json", {"auto_map": {"AutoModel": "owner/name--modeling_x.Net"}})
    assert other.verdict == "suspicious"
    assert other.findings[0].name == "owner/name--modeling_x.Net"


def test_no_name_is_both_ordinary_and_dangerous() -> None:
    assert not [name for name in TARGETS if is_dangerous(name) and not name.startswith("builtins.")]
    assert all(name.count(".") >= 1 and " " not in name for name in TARGETS | YAML_DATA)


def test_names_are_exact(tmp_path: Path) -> None:
    for name, verdict in (
        ("torch.optim.Adam", "clean"),
        ("torch.optim.AdamX", "suspicious"),
        ("torch.optim", "suspicious"),
        ("torch.optim.Adam.__init__", "malicious"),
        ("os.path.join", "malicious"),
    ):
        assert scan(tmp_path, "config.json", {"a": [{"_target_": name}]}).verdict == verdict, name


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+",
        "(a*)*",
        "([a-z]+)*$",
        r"(\w+\s?)*",
        "(a|a)+",
        "(a|aa)*",
        "(?:(a+)b?)*",
        "((x+))+",
        "(?i:(.*)*)",
        "(a{2,})+",
    ],
)
def test_exponential(pattern: str) -> None:
    assert is_exponential(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "a+",
        "(a+)",
        "(ab+)+",
        r"(\w+\s)+",
        "(a++)+",
        "(?>a+)+",
        "(a|b)+",
        "(foo|bar)*",
        "(a+)?",
        "(?=a+)*",
        r"\((a+\))+",
        "[(a+)]+",
        r"(?:\r?\n)+",
        r"(?:\p{L}\p{M}*)+",
        "(a{2,3})+",
        "(",
        "[",
        "a{",
        "(?<n>",
        "\\",
    ],
)
def test_not_clearly_exponential(pattern: str) -> None:
    assert not is_exponential(pattern)


def tags(text: str) -> list[str]:
    return [value for kind, value, _ in yaml_tags.tokens(text) if kind == "tag"]


PIECES = st.sampled_from(
    [
        "a: ",
        "b: ",
        "- ",
        "? ",
        ": ",
        "\n",
        "\n  ",
        "\n    ",
        "!!python/name:os.system",
        "!!python/tuple ",
        "!x ",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "'",
        '"',
        "|\n",
        ">-\n",
        "text",
        "# c",
        "&a ",
        "*a",
        "---\n",
        "!<tag:yaml.org,2002:python/name:os.system> ",
        " ",
        "it's",
        "%TAG !p! tag:yaml.org,2002:python/\n---\n",
        "!p!name:os.system",
        "\\",
        "x:y",
        "-x",
        "!!str ",
        "1",
    ]
)


@settings(max_examples=500, deadline=None)
@given(st.lists(PIECES, max_size=14).map("".join))
def test_every_tag_that_pyyaml_sees_is_seen(text: str) -> None:
    """PyYAML's parser only, which builds nothing, is the oracle: what it takes for a tag, ours does too."""
    try:
        seen = [
            event.tag
            for event in yaml.parse(text, Loader=yaml.SafeLoader)
            if isinstance(event, yaml.NodeEvent) and not isinstance(event, yaml.AliasEvent) and event.tag
        ]
    except yaml.YAMLError:
        return
    python = [tag for tag in seen if "python/" in tag]
    ours = tags(text)
    assert all(ours.count(tag) >= python.count(tag) for tag in python), (text, python, ours)


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(
        st.text(alphabet="ab_.!| '\"#:-&*\n\\", max_size=8) | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["a", "x y", "_target_", "b:"]), inner, max_size=3)
        ),
        max_leaves=8,
    ),
    st.booleans(),
)
def test_targets_are_found_however_they_are_written(value: object, flow: bool) -> None:
    """What PyYAML writes, in its own styles, with a dangerous target somewhere: it is found."""
    text = yaml.safe_dump({"first": value, "then": {"_target_": "os.system"}, "last": value}, default_flow_style=flow)
    found = False
    pending = False
    for kind, token, _ in yaml_tags.tokens(text):
        if kind in ("scalar", "key") and pending:
            found = found or token == "os.system"
            pending = False
        pending = kind == "key" and token == "_target_"
    assert found, text
    assert tags(text) == []


def test_json_escapes_do_not_hide_keys(tmp_path: Path) -> None:
    assert scan(tmp_path, "config.json", b'{"_t\\u0061rget_": "os.syst\\u0065m"}').verdict == "malicious"


def test_which_files_are_configurations(tmp_path: Path) -> None:
    document = {"auto_map": {"AutoModel": "o/r--a.B"}}
    for name in ("config.json", "tokenizer_config.json", "Config.JSON", "generation_config.json", "my_config.json"):
        assert scan(tmp_path, name, document).verdict == "suspicious", name
    for name in ("data.json", "vocab.json", "package.json"):
        assert scan(tmp_path, name, document).verdict == "clean", name


def test_a_pattern_far_into_a_large_tokenizer(tmp_path: Path) -> None:
    document = b'{"model": {"vocab": {' + b",".join(b'"token%d": %d' % (i, i) for i in range(300_000)) + b"}},"
    document += b'"normalizer": {"pattern": {"Regex": "(a+)+"}}}'
    assert [f.rule for f in scan(tmp_path, "tokenizer.json", document).findings] == ["tokenizer-regex"]
