"""What tokenizers are compared on: many scripts, code, emoji, numbers, spaces. Each line is a text of its own."""

from __future__ import annotations

from collections.abc import Sequence

PLAIN: tuple[str, ...] = (
    "The quick brown fox jumps over the lazy dog. It's 5 o'clock; they'll've gone, I'M SURE, we'd say.",
    "Hello world", " leading space", "trailing space ", "two  spaces   three    four     five",
    "line one\nline two\n\nline four\r\nwindows\n \n  indented\n\ttab\t\ttabs \t mixed",
    "3 33 333 3333 33333 333333 3.14159 1,234,567.89 0x1F 1e-9 2026-12-01 ½ ²³ ٤٢ ๑๒",
    "def f(x: int) -> str:\n    return f\"{x!r:>10}\" if x >= 0 else '-' * -x  # comment\n",
    "for (int i = 0; i < n; ++i) { a[i] &= ~b[i] << 2; } /* done */ <html><br/></html> $PATH ${x} @user #tag",
    "https://example.org/a_b?q=1&r=%20#x user@example.org C:\\temp\\x.txt",
    "Straße, café, naïve, Łódź, Ångström, ĞİŞ, façade — “quoted” ‘single’…",
    "Привет, мир! Как дела? Їжак 2 кг",
    "Καλημέρα κόσμε, αβγ ΑΒΓ",
    "今天天气很好，我们去公园吧。中文abc123混合",
    "こんにちは世界。カタカナと漢字 １２３",
    "안녕하세요 세계, 한국어 문장",
    "مرحبا بالعالم שלום עולם",
    "नमस\u094dत\u0947 द\u0941न\u093fय\u093e สว\u0e31สด\u0e35ชาวโลก ក\u17b6ន\u17cbត\u17c2",
    "😀 👩\u200d👩\u200d👧\u200d👦 🇩🇪 ❤\ufe0f 👍🏽 ✅ 🚀🚀",
    "!!! ??? ... --- === *** ((( ))) [[ ]] {{ }} << >> || && ~~ `` '' \"\" €£¥ ±×÷ ∑∫",
    "zero\u200bwidth non\u00a0breaking thin\u2009space soft\u00adhyphen e\u0301 combining Å ﬁ",
    "MiXeD CaSe wOrDs HTTPServer iPhone snake_case camelCase SCREAMING_CASE kebab-case",
    "a", "", " ", "\n",
)  # fmt: skip


def with_specials(names: Sequence[str]) -> list[str]:
    """Texts with special tokens in them, by name: alone, side by side, between words, next to spaces."""
    found = []
    for name in names:
        found += [name, f"Hello {name} world", f"one{name}two", f"{name}{name}\n{name} end"]
    return found
