"""Where keys and values stand in a TOML text: by hand, and against a writer that notes what it writes where."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifactkit.recipe.positions import Path, find

TEXT = """\
# a comment with [brackets] and "quotes
top = 1
[models.one]
source = "a # no comment"   # a comment
'literal key' = '''
[not.a.table]
x = 1''' # after
[[list]]
a.b = [1, # one
  { c = "}" , "d\\u0021" = ']' },
]
[[list]]
[list.sub]
day = 1979-05-27 07:32:00Z
[[list.deep]]
e = \"\"\"x\\"\"\"\"\"\"
"""


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        (("top",), (2, 1), (2, 7)),
        (("models",), (3, 2), (3, 2)),
        (("models", "one"), (3, 9), (3, 9)),
        (("models", "one", "source"), (4, 1), (4, 10)),
        (("models", "one", "literal key"), (5, 1), (5, 17)),
        (("list",), (8, 3), (8, 3)),
        (("list", 0), (8, 3), (8, 3)),
        (("list", 0, "a"), (9, 1), (9, 1)),
        (("list", 0, "a", "b"), (9, 3), (9, 7)),
        (("list", 0, "a", "b", 0), (9, 8), (9, 8)),
        (("list", 0, "a", "b", 1), (10, 3), (10, 3)),
        (("list", 0, "a", "b", 1, "c"), (10, 5), (10, 9)),
        (("list", 0, "a", "b", 1, "d!"), (10, 15), (10, 27)),
        (("list", 1), (12, 3), (12, 3)),
        (("list", 1, "sub"), (13, 7), (13, 7)),
        (("list", 1, "sub", "day"), (14, 1), (14, 7)),
        (("list", 1, "deep", 0, "e"), (16, 1), (16, 5)),
        # What is not there is where its table is.
        (("models", "one", "absent"), (3, 9), (3, 9)),
        (("absent",), (1, 1), (1, 1)),
    ],
)
def test_where(path: Path, key: tuple[int, int], value: tuple[int, int]) -> None:
    tomllib.loads(TEXT)
    found = find(TEXT)
    assert (found.key(path), found.value(path)) == (key, value)


def test_headers_are_the_places_where_tables_begin() -> None:
    found = find(TEXT)
    assert [(TEXT[at : TEXT.index("]", at) + 1], path) for at, path in found.headers] == [
        ("[models.one]", ("models", "one")),
        ("[[list]", ("list", 0)),
        ("[[list]", ("list", 1)),
        ("[list.sub]", ("list", 1, "sub")),
        ("[[list.deep]", ("list", 1, "deep", 0)),
    ]


# A writer that notes where it puts things. What it writes is drawn: styles of strings, comments, blanks, tables.


@dataclass
class Writer:
    draw: Any
    out: str = ""
    keys: dict[Path, int] = field(default_factory=dict)
    values: dict[Path, int] = field(default_factory=dict)

    def one_of(self, *choices: str) -> str:
        return self.draw(st.sampled_from(choices))

    def put(self, text: str) -> None:
        self.out += text

    def gap(self) -> None:
        self.put(self.one_of("", " ", "\t", "  "))

    def blank(self) -> None:
        self.put(self.one_of("", " ", "\n", "# ] } = \" ' [x]\n", "\n\n"))

    def key(self, path: Path) -> None:
        name = str(path[-1])
        self.keys.setdefault(path, len(self.out))
        bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
        styles = [self.quoted(name)] + ([name] if bare else [])
        if "'" not in name and name.isprintable():
            styles.append(f"'{name}'")
        self.put(self.one_of(*styles))

    def quoted(self, text: str) -> str:
        return '"' + "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text) + '"'

    def string(self, text: str) -> str:
        styles = [self.quoted(text), '""' + self.quoted(text) + '""', '"""\n' + self.quoted(text)[1:-1] + '"""']
        if "'" not in text and all(c.isprintable() for c in text):
            styles += [f"'{text}'", f"'''{text}'''", f"'''\n{text}'''"]
        return self.one_of(*styles)

    def value(self, path: Path, value: object) -> None:
        self.values[path] = len(self.out)
        if isinstance(value, dict):
            self.put("{")
            for number, (name, item) in enumerate(value.items()):
                self.put("," if number else "")
                self.gap()
                self.assignment((*path, name), item)
                self.gap()
            self.put("}")
        elif isinstance(value, list):
            self.put("[")
            for number, item in enumerate(value):
                self.blank()
                self.value((*path, number), item)
                self.blank()
                self.put("," if number + 1 < len(value) else self.one_of("", ","))
            self.blank()
            self.put("]")
        elif isinstance(value, bool):
            self.put(str(value).lower())
        elif isinstance(value, str):
            self.put(self.string(value))
        else:
            self.put(repr(value))

    def assignment(self, path: Path, value: object) -> None:
        self.key(path)
        self.gap()
        self.put("=")
        self.gap()
        self.value(path, value)

    def table(self, path: Path, table: dict[str, Any]) -> None:
        """The plain keys first, then tables with headers of their own."""
        later = []
        for name, value in table.items():
            here = (*path, name)
            tables = isinstance(value, list) and value and all(isinstance(item, dict) for item in value)
            if (tables or isinstance(value, dict)) and self.draw(st.booleans()):
                later.append((here, value))
                continue
            self.gap()
            self.assignment(here, value)
            self.gap()
            self.put(self.one_of("\n", "# x = 1\n"))
        for here, value in later:
            for number, item in enumerate(value if isinstance(value, list) else [value]):
                inner = (*here, number) if isinstance(value, list) else here
                self.header(here, isinstance(value, list), inner)
                self.table(inner, item)

    def header(self, path: Path, several: bool, inner: Path) -> None:
        self.put("[[" if several else "[")
        names = [end for end in range(1, len(path) + 1) if isinstance(path[end - 1], str)]
        for number, end in enumerate(names):
            self.put("." if number else "")
            self.gap()
            self.key(path[:end])
            self.gap()
        if several:
            self.keys.setdefault(inner, self.keys[path] if inner[-1] == 0 else self.last_key())
        self.put("]]\n" if several else "]\n")

    def last_key(self) -> int:
        """Where the last part of the header that was just written begins: found by the finder on this line alone."""
        start = self.out.rindex("\n[[") + 1 if "\n[[" in self.out else 0
        line = find(self.out[start:] + "]]\n")
        return start + max(offset for path, offset in line.keys.items() if path)


leaf = st.one_of(
    st.booleans(), st.integers(-10, 10**6), st.text(max_size=6), st.floats(allow_nan=False, allow_infinity=False)
)
name = st.one_of(st.from_regex(r"[a-z0-9_-]{1,4}", fullmatch=True), st.text(min_size=0, max_size=4))
nested = st.recursive(
    leaf, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(name, inner, max_size=3)), max_leaves=8
)
document = st.dictionaries(name, nested, max_size=4)


def paths(value: object, path: Path = ()) -> list[tuple[Path, object]]:
    out = [(path, value)] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for part, item in items:
        out += paths(item, (*path, part))
    return out


@settings(max_examples=60)
@given(document, st.data())
def test_every_key_and_value_is_found_where_it_was_written(table: dict[str, Any], data: st.DataObject) -> None:
    writer = Writer(data.draw)
    writer.table((), table)
    assert tomllib.loads(writer.out) == table
    found = find(writer.out)
    assert found.values == writer.values
    for path, _ in paths(table):
        assert path in found.keys or path in found.values
        if path in writer.keys and path[-1] not in range(100):
            assert found.keys[path] == writer.keys[path]
