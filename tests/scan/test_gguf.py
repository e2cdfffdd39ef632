"""Chat templates: judged on their tree, with the line and the name; real ways of formatting stay clean."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hostile.gguf import ARCHITECTURE, built, string
from hostile.templates import BENIGN, HOSTILE
from hypothesis import given, settings
from hypothesis import strategies as st

from artifactkit.scan import templates
from artifactkit.scan.scanner import scan_file


def rules(text: str) -> set[str]:
    return {r.rule.id for r in templates.remarks(text) if r.rule is not None}


@pytest.mark.parametrize(("name", "rule", "text"), HOSTILE, ids=[n for n, _, _ in HOSTILE])
def test_hostile(name: str, rule: str, text: str) -> None:
    assert rule in rules(text)


@pytest.mark.parametrize(("name", "text"), BENIGN, ids=[n for n, _ in BENIGN])
def test_ordinary(name: str, text: str) -> None:
    assert rules(text) == set()


def test_line_and_name() -> None:
    (remark,) = templates.remarks("one\ntwo\n{{ x.__class__ }}")
    assert (remark.line, remark.name) == (3, "__class__")


@pytest.mark.parametrize(
    ("hostile", "twin"),
    [
        ("{{ m['__cla' ~ x] }}", "{{ m['tool_' ~ x] }}"),
        ("{{ m[a ~ b] }}", "{{ m[a] }}"),
        ("{{ m[a|join] }}", "{{ a|join }}"),
        ("{{ m|attr('__class__') }}", "{{ m|attr('content') }}"),
        ("{{ m|map(attribute='__class__') }}", "{{ m|map(attribute='content') }}"),
        ("{{ m['x' + y] }}", "{{ m[1 + y] }}"),
        ("{% set k = '__class__' %}{{ m[k] }}", "{% set k = 'content' %}{{ m[k] }}"),
        ("{% for k in ['__class__'] %}{{ m[k] }}{% endfor %}", "{% for k in ['role'] %}{{ m[k] }}{% endfor %}"),
        ("{{ 'a' * 10000000 }}", "{{ '-' * 100 }}"),
        ("{% for i in range(10000000) %}{% endfor %}", "{% for i in range(10) %}{% endfor %}"),
        ("{{ '{0._x}'.format(m) }}", "{{ '{0}: {1}'.format(m, n) }}"),
        ("{% macro f() %}{{ f() }}{% endmacro %}", "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}"),
        ("{{ cycler }}", "{% set c = cycler('a', 'b') %}{{ c.next() }}"),
        ("{{ self.x() }}", "{% set self = 1 %}{{ self }}"),
        ("{% if x.__class__ %}{% endif %}", "{% if 'x.__class__' == y %}{% endif %}"),
    ],
)
def test_twins(hostile: str, twin: str) -> None:
    if "'x' + y" in hostile:  # begins with a letter, so it cannot be private
        assert rules(hostile) == set()
    else:
        assert rules(hostile)
    assert rules(twin) == set()


def test_triggers_without_prose_are_inventory(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    text = "{% if 'secret' in messages[-1]['content'] %}<|x|>{% endif %}"
    path.write_bytes(built([ARCHITECTURE, string("tokenizer.chat_template", text)]))
    report = scan_file(str(path))
    assert report.verdict == "clean"
    assert any("contains 'secret'" in entry.what for entry in report.inventory)


def test_findings_name_key_and_line(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(built([string("tokenizer.chat_template.tool_use", "{# #}\n{{ x.__class__ }}")]))
    (finding,) = scan_file(str(path)).findings
    assert finding.what == "tokenizer.chat_template.tool_use, line 2: reads the attribute __class__"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "{{",
                "}}",
                "{%",
                "%}",
                "x",
                ".__class__",
                "['a']",
                "|attr(",
                ")",
                "'",
                "~",
                "(",
                "for i in",
                "if",
                "endif",
                "endfor",
                "macro m()",
                "set a =",
                "{#",
                "#}",
                "-",
                "\n",
                "**",
                "[::-1]",
                "\\",
                "\x00",
            ]
        ),
        max_size=30,
    )
)
def test_any_text_is_judged(parts: list[str]) -> None:
    templates.remarks(" ".join(parts))


def test_jinja_is_imported_for_templates_only(tmp_path: Path) -> None:
    plain, templated = tmp_path / "a.gguf", tmp_path / "b.gguf"
    plain.write_bytes(built([ARCHITECTURE]))
    templated.write_bytes(built([string("tokenizer.chat_template", "{{ x }}")]))
    code = (
        "import sys; from artifactkit.scan.scanner import scan_file\n"
        "scan_file(sys.argv[1]); assert 'jinja2' not in sys.modules\n"
        "scan_file(sys.argv[2]); assert 'jinja2' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, plain, templated], check=True, timeout=60)
