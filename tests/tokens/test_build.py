"""From a folder's files to a vocabulary: what is understood, what is told as lost, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import made_tokenizers as made
import pytest

from artifactkit.errors import ArtifactkitError, Corrupt, LimitExceeded, RouteRefused, RunFailed, UsageError
from artifactkit.opening import companions
from artifactkit.tokens import build, files, huggingface, keyvalues
from artifactkit.tokens import pretokenizers as pt
from artifactkit.tokens.fingerprints import HASHES
from artifactkit.tokens.vocabulary import ADDED_SCORE, CONTROL, NORMAL, SPACE, UNUSED, USER_DEFINED, Vocabulary

Json = dict[str, Any]
LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def bpe(**more: Any) -> Json:
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]], **more.pop("model", {})}
    added = [{"id": 3, "content": "<|end|>", "special": True, "normalized": False}]
    return {"version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": LEVEL, "post_processor": None,
            "decoder": LEVEL, "model": model, **more}  # fmt: skip


def read(tmp_path: Path, rows: int = 4, config: Json | None = None, **contents: Any) -> Vocabulary:
    named = {name.replace("__", "."): content for name, content in contents.items()}
    found = files.read(companions(str(made.write(tmp_path / "m", named))))
    assert found is not None
    return build.vocabulary(found, config or {}, rows)


def test_a_folder_without_a_tokenizer_has_none(tmp_path: Path) -> None:
    made.write(tmp_path / "m", {"config.json": {}, "tokenizer_config.json": {"tokenizer_class": "X"}})
    assert files.read(companions(str(tmp_path / "m"))) is None


def test_rows_without_tokens_are_unused(tmp_path: Path) -> None:
    found = read(tmp_path, 6, tokenizer__json=bpe(), tokenizer_config__json={"eos_token": "<|end|>"})
    assert found.tokens == ("a", "b", "ab", "<|end|>", "[PAD4]", "[PAD5]")
    assert found.types == (NORMAL, NORMAL, NORMAL, CONTROL, UNUSED, UNUSED) and found.padding == 2
    assert found.merges == ("a b",) and found.special == {"eos": 3} and found.add == {"bos": False, "eos": False}
    assert found.losses == ()


def test_holes_are_unused_too(tmp_path: Path) -> None:
    model = {"vocab": {"a": 0, "b": 2, "ab": 4}}
    found = read(tmp_path, 5, tokenizer__json=bpe(model=model), tokenizer_config__json={"eos_token": "<|end|>"})
    assert found.tokens == ("a", "[PAD1]", "b", "<|end|>", "ab") and found.types[1] == UNUSED


def test_added_tokens_without_a_row_are_left_out_and_told(tmp_path: Path) -> None:
    found = read(tmp_path, 3, tokenizer__json=bpe())
    assert found.tokens == ("a", "b", "ab")
    assert [loss.kind for loss in found.losses] == ["tokenizer-dropped", "function-differs"]
    with pytest.raises(RouteRefused, match="more tokens than the embedding has rows"):
        read(tmp_path, 2, tokenizer__json=bpe())


def test_added_tokens_that_are_not_special(tmp_path: Path) -> None:
    added = [{"id": 3, "content": f"x{SPACE}y", "special": False}, {"id": 4, "content": "<|looks|>", "special": False}]
    found = read(tmp_path, 5, tokenizer__json=bpe(added_tokens=added), config={"eos_token_id": 4})
    assert found.tokens[3:] == ("x y", "<|looks|>") and found.types[3:] == (USER_DEFINED, CONTROL)
    assert found.special == {"eos": 4}


def template(*single: str) -> Json:
    one = {"Sequence": {"id": "A", "type_id": 0}}
    part = [one if s == "A" else {"SpecialToken": {"id": s, "type_id": 0}} for s in single]
    return {"type": "TemplateProcessing", "single": part, "pair": [], "special_tokens": {}}


@pytest.mark.parametrize(
    ("post", "config", "add", "special", "lost"),
    [
        (None, {"eos_token": "<|end|>"}, {"bos": False, "eos": False}, {"eos": 3}, 0),
        (template("<|end|>", "A"), {"bos_token": "<|end|>", "eos_token": "b"}, {"bos": True, "eos": False},
         {"bos": 3, "eos": 1}, 0),
        (template("<|end|>", "A"), {"eos_token": "b"}, {"bos": True, "eos": False}, {"bos": 3, "eos": 1}, 0),
        (template("A", "<|end|>"), {"eos_token": "b"}, {"bos": False, "eos": True}, {"eos": 3, "eot": 1}, 0),
        (template("a", "b", "A"), {"eos_token": "b"}, {"bos": False, "eos": False}, {"eos": 1}, 1),
        ({"type": "RobertaProcessing", "cls": ["a", 0], "sep": ["b", 1]}, {"cls_token": "a", "sep_token": "b"},
         {"bos": True, "eos": True, "sep": True}, {"bos": 0, "eos": 1, "sep": 1}, 0),
        (
            {"type": "Sequence", "processors": [LEVEL, template("<|end|>", "A")]},
            {"bos_token": "<|end|>", "eos_token": "b", "add_bos_token": False},
            {"bos": False, "eos": False}, {"bos": 3, "eos": 1}, 0,
        ),
        (None, {"eos_token": {"content": "<|end|>"}, "add_bos_token": True}, {"eos": False}, {"eos": 3}, 1),
    ],
)  # fmt: skip
def test_begin_and_end(tmp_path: Path, post: Json | None, config: Json, add: Json, special: Json, lost: int) -> None:
    found = read(tmp_path, tokenizer__json=bpe(post_processor=post), tokenizer_config__json=config)
    assert (found.add, found.special, len(found.losses)) == (add, special, lost)


def test_a_length_without_limit_is_no_bomb(tmp_path: Path) -> None:
    config = {"eos_token": "<|end|>", "model_max_length": 1000000000000000019884624838656,
              "chat_template": "1: 1000000000000000019884624838656"}  # fmt: skip
    found = read(tmp_path, tokenizer__json=bpe(), tokenizer_config__json=config)
    assert found.templates == {"default": "1: 1000000000000000019884624838656"}


def test_chat_templates(tmp_path: Path) -> None:
    held = [{"name": "default", "template": "A"}, {"name": "tool use", "template": "B"}]
    config = {"eos_token": "<|end|>", "chat_template": held}
    found = read(tmp_path, tokenizer__json=bpe(), tokenizer_config__json=config)
    pairs = {p.key: p.value for p in keyvalues.write(found)}
    assert pairs["tokenizer.chat_template"] == "A" and pairs["tokenizer.chat_template.tool_use"] == "B"
    assert pairs["tokenizer.chat_templates"] == ("tool_use",)
    # As in transformers 5 the file of its own counts.
    found = read(tmp_path, tokenizer__json=bpe(), tokenizer_config__json=config, chat_template__jinja="C")
    assert found.templates == {"default": "C", "tool use": "B"}


REFUSED: list[tuple[str, Json, type[ArtifactkitError], str]] = [
    ("kind", {"model": {"type": "WordLevel"}}, RouteRefused, "no tokenizer of this kind"),
    ("prefix", {"model": {"continuing_subword_prefix": "##"}}, RouteRefused, "marks in its tokens"),
    ("suffix", {"model": {"end_of_word_suffix": "</w>"}}, RouteRefused, "marks in its tokens"),
    ("neither", {"pre_tokenizer": None, "decoder": None}, RouteRefused, "neither"),
    ("normalizer", {"normalizer": {"type": "Lowercase"}}, RouteRefused, "nothing alike for this normalizer"),
    ("no model", {"model": {"vocab": None}}, Corrupt, "no vocabulary"),
    ("no merges", {"model": {"merges": []}}, RouteRefused, "no BPE without merges"),
    ("merges", {"model": {"merges": ["a b c"]}}, Corrupt, "a merge is no pair"),
    ("twice", {"model": {"vocab": {"a": 0, "b": 0}}}, Corrupt, "two tokens have one id"),
    ("id", {"model": {"vocab": {"a": -1}}}, Corrupt, "a token's id is none"),
    ("far", {"model": {"vocab": {"a": 4_000_000}}}, Corrupt, "more holes than tokens"),
    ("added", {"added_tokens": [{"content": "x"}]}, Corrupt, "an added token is none"),
    ("same text", {"added_tokens": [{"id": 3, "content": "ab", "special": True}]}, RouteRefused, "comes twice"),
    ("sequence", {"normalizer": {"type": "Sequence"}}, Corrupt, "without members"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "error", "words"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_what_is_refused(tmp_path: Path, change: Json, error: type[ArtifactkitError], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        read(tmp_path, tokenizer__json=bpe(**change))
    assert caught.value.file is not None and caught.value.file.endswith("tokenizer.json")


@pytest.mark.parametrize(
    ("contents", "error"),
    [
        ({"tokenizer__json": "[" * 100}, LimitExceeded),
        ({"tokenizer__json": "[]"}, Corrupt),
        ({"tokenizer__json": '{"model": {}, "model": {}}'}, Corrupt),
        ({"tokenizer__json": b"\xff"}, Corrupt),
        ({"vocab__txt": b"\xff"}, Corrupt),
        ({"vocab__txt": "[UNK]\n[SEP]\n[CLS]\n[PAD]\n[MASK]\na\na"}, Corrupt),
        ({"vocab__txt": "a\nb"}, Corrupt),
        ({"vocab__json": {"a": 0}, "merges__txt": "a b"}, RouteRefused),
        ({"vocab__json": {"a": "0"}, "merges__txt": "a b"}, Corrupt),
        ({"tokenizer__model": b"IQ== 0\n"}, RouteRefused),
        ({"tokenizer__json": bpe(), "chat_template__jinja": b"\xff"}, Corrupt),
        ({"tokenizer__json": bpe(), "tokenizer_config__json": {"chat_template": [{"name": "x"}]}}, Corrupt),
    ],
)
def test_files_that_are_none(tmp_path: Path, contents: Json, error: type[ArtifactkitError]) -> None:
    with pytest.raises(error):
        read(tmp_path, **contents)


def test_a_charsmap_that_llama_cpp_would_read_past(tmp_path: Path) -> None:
    from base64 import b64encode

    def unigram(data: bytes) -> Json:
        norm = {"type": "Precompiled", "precompiled_charsmap": b64encode(data).decode()}
        model = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], [SPACE, -1.0]]}
        space = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always"}
        return {"model": model, "normalizer": norm, "pre_tokenizer": space, "added_tokens": []}

    with pytest.raises(RouteRefused, match="compiled normalisation is broken"):
        read(tmp_path, 2, tokenizer__json=unigram(b"\x04\x00\x00\x00abcd"))
    assert read(tmp_path, 2, tokenizer__json=unigram(b"\x04\x00\x00\x00abcd\x00")).charsmap.endswith(b"d\x00")


def test_vocab_txt_is_as_tokenizer_json(tmp_path: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "##s"]
    found = read(tmp_path, 7, vocab__txt="\n".join(words) + "\n", tokenizer_config__json={"do_lower_case": False})
    assert found.model == "bert" and found.tokens == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", SPACE + "the", "s")
    assert (found.lowercase, found.strip_accents) == (False, None)
    assert found.special == {"bos": 2, "eos": 3, "unk": 1, "sep": 3, "pad": 0, "mask": 4}


def test_vocab_json_with_merges(tmp_path: Path) -> None:
    config = {"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|endoftext|>"}
    vocab = {"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}
    found = read(tmp_path, vocab__json=vocab, merges__txt="#version: 0.2\na b\n", tokenizer_config__json=config)
    assert found.tokens == ("a", "b", "ab", "<|endoftext|>") and found.merges == ("a b",) and found.types[3] == CONTROL


def test_merges_of_bytes_become_scores_where_all_pairs_are_listed(tmp_path: Path) -> None:
    model = {
        "vocab": {"<unk>": 0, "a": 1, "b": 2, "c": 3, "ab": 4, "bc": 5, "abc": 6},
        "unk_token": "<unk>",
        "byte_fallback": True,
    }
    pairs = [["a", "b"], ["b", "c"], ["ab", "c"], ["a", "bc"]]
    space = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "never"}
    json_of = lambda merges: bpe(model={**model, "merges": merges}, pre_tokenizer=space, decoder=None, added_tokens=[])
    found = read(tmp_path, 7, tokenizer__json=json_of(pairs))
    assert (
        found.model == "llama"
        and found.scores == (-4.0, 0.0, 0.0, 0.0, 0.0, -1.0, -2.0)
        and found.space_prefix is False
    )
    with pytest.raises(RouteRefused, match=r"would merge what tokenizer\.json does not") as caught:
        read(tmp_path, 7, tokenizer__json=json_of(pairs[:3]))
    assert caught.value.found == "1 pair not listed, such as 'a' 'bc'"


def test_added_scores(tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece")
    config = {
        **made.LLAMA,
        "added_tokens_decoder": {"1": {"content": "<s>", "special": True}, "700": {"content": "<x>"}},
    }
    found = read(tmp_path, 702, tokenizer__model=made.pieces("bpe"), tokenizer_config__json=config)
    assert found.model == "llama" and found.scores[1] == found.scores[700] == ADDED_SCORE
    assert found.types[700] == USER_DEFINED and found.tokens[701] == "[PAD701]"


# -- the name of the pre-tokenizer


def test_an_unknown_fingerprint_is_refused_with_what_is_known(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    with pytest.raises(RouteRefused, match="nobody knows how this tokenizer cuts text") as caught:
        made.vocabulary(made.folder("qwen2", tmp_path / "m"))
    error = caught.value
    assert error.found is not None and error.expected is not None and error.hint is not None
    assert len(error.found.removeprefix("sha256 ")) == 64 and error.member == "PreTrainedTokenizer"
    assert "qwen2" in error.expected and "smollm" not in error.expected and "--pre-tokenizer" in error.hint


def test_a_name_that_is_given(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    folder = made.folder("qwen2", tmp_path / "m")
    assert made.vocabulary(folder, "qwen2")[1].losses == ()
    [loss] = made.vocabulary(folder, "smollm")[1].losses
    assert loss.kind == "function-differs" and "cut otherwise" in loss.detail
    with pytest.raises(UsageError) as caught:
        made.vocabulary(folder, "quen2")
    assert caught.value.expected is not None and "qwen2" in caught.value.expected


def test_names_of_fingerprints_are_known() -> None:
    # Two are of BERT's, where llama.cpp reads no name.
    assert {*HASHES.values()} - pt.KNOWN == {"bert-bge-large", "jina-v2-en"}
    assert not {*pt.CUTS} & {*pt.OTHERS} and len(HASHES) == 91


# -- key-values and back


@pytest.mark.parametrize("kind", ["gpt-2", "bert", "t5"])
def test_pairs_come_back(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    pytest.importorskip("sentencepiece")
    _, vocabulary = made.vocabulary(made.folder(kind, tmp_path / "m"), "gpt-2" if kind == "gpt-2" else None)
    read = keyvalues.read(made.pairs(made.gguf(vocabulary, tmp_path / "m.gguf")))
    assert read is not None
    for name in ("model", "tokens", "types", "merges", "pre", "lowercase", "strip_accents", "charsmap", "templates"):
        assert getattr(read, name) == getattr(vocabulary, name), name
    assert {k: read.special[k] for k in vocabulary.special} == vocabulary.special
    assert {k: read.add[k] for k in vocabulary.add} == vocabulary.add
    written = huggingface.files(read, 77)
    assert json.loads(written["tokenizer_config.json"])["model_max_length"] == 77
    assert (
        json.loads(written["tokenizer.json"])["model"]["type"]
        == {"gpt-2": "BPE", "bert": "WordPiece", "t5": "Unigram"}[kind]
    )


def test_the_way_back_refuses_what_it_does_not_know() -> None:
    base = Vocabulary("gpt2", ("a", "b", "ab"), (1, 1, 1), merges=("a b",), pre="kimi-k2")
    with pytest.raises(RouteRefused, match=r"no tokenizer\.json is known"):
        huggingface.files(base)
    with pytest.raises(RouteRefused, match="needs scores"):
        huggingface.files(Vocabulary("llama", ("a",), (1,)))
    with pytest.raises(Corrupt, match="no UTF-8"):
        huggingface.files(Vocabulary("gpt2", ("\udcff", "b", "ab"), (1, 1, 1), merges=("a b",), pre="gpt-2"))


def test_an_error_of_the_library_is_an_error_of_ours() -> None:
    pytest.importorskip("tokenizers")
    from artifactkit.tokens.library import Library

    with pytest.raises(ArtifactkitError, match="tokenizers"):
        Library({"model": {"type": "nothing"}}, "x")
    # An expression that would take for ever is given up.
    split = {
        "type": "Split",
        "pattern": {"Regex": "(a*)*(b|a*)*c(?=x)|(?:a|aa)+$(?!a)"},
        "behavior": "Isolated",
        "invert": False,
    }
    with (
        Library(bpe(pre_tokenizer=split, added_tokens=[]), "x") as library,
        pytest.raises(RunFailed, match="retry-limit"),
    ):
        library.encode(["a" * 3000 + "b"])
    with pytest.raises(RunFailed, match="within"):
        Library(bpe(added_tokens=[]), "x", seconds=1e-4)
