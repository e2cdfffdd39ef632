"""vocab.txt, and vocab.json with merges.txt: the tokenizer.json that transformers makes of them, by tokenizer class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..errors import Corrupt, RouteRefused

if TYPE_CHECKING:
    from .files import Files, Object

# Classes whose tokenizers cut text as GPT-2 does, and as Qwen2 does. An unknown class cuts it nobody knows how.
GPT2 = ("GPT2Tokenizer", "RobertaTokenizer", "BartTokenizer", "LongformerTokenizer")
QWEN2 = ("Qwen2Tokenizer",)
QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BERT = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MPNetTokenizer", "")
# Names that a class gives its tokens where tokenizer_config.json says nothing.
ROBERTA_FRAME = {
    "bos": "<s>",
    "eos": "</s>",
    "sep": "</s>",
    "cls": "<s>",
    "unk": "<unk>",
    "pad": "<pad>",
    "mask": "<mask>",
}
BERT_FRAME = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
GPT2_FRAME = {"bos": "<|endoftext|>", "eos": "<|endoftext|>", "unk": "<|endoftext|>"}
QWEN2_FRAME = {"eos": "<|endoftext|>", "pad": "<|endoftext|>"}


def text_of(value: object) -> str | None:
    """The text of a special token, which stands as such or as an object with its properties."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def named(files: Files, frame: Mapping[str, str]) -> dict[str, str]:
    """Special tokens by transformers' names, as the files say or as the class has them; the files then say so too."""
    found = dict(frame)
    for source in (files.specials, files.config):
        found |= {n: t for n in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
                  if (t := text_of(source.get(f"{n}_token"))) is not None}  # fmt: skip
    files.specials = {f"{name}_token": text for name, text in found.items()}
    return found


def bpe(files: Files, vocab: Mapping[str, int], lines: list[str]) -> Object:
    """vocab.json and merges.txt. RouteRefused for a class that is not known to cut text as GPT-2 or Qwen2 do."""
    if files.cls not in (*GPT2, *QWEN2):
        raise RouteRefused(
            "vocab.json and merges.txt do not say how text is cut before merging", file=files.main,
            member="tokenizer_class", expected=", ".join((*GPT2, *QWEN2)), found=files.cls or "none",
            hint="a tokenizer.json says it: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
        )  # fmt: skip
    merges = []
    for i, line in enumerate(lines):
        if not line or (i == 0 and line.startswith("#version")):
            continue
        pair = line.split(" ")
        if len(pair) != 2:
            raise Corrupt("a merge is no pair", file=files.main, member="merges.txt", offset=i, found=repr(line)[:60])
        merges.append(pair)
    space = files.config.get("add_prefix_space") is True
    level = {"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": True}
    roberta = files.cls != "GPT2Tokenizer" and files.cls in GPT2
    frame = named(files, ROBERTA_FRAME if roberta else GPT2_FRAME if files.cls in GPT2 else QWEN2_FRAME)
    pre: Object = {**level, "use_regex": True}
    if files.cls in QWEN2:
        split = {"type": "Split", "pattern": {"Regex": QWEN2_SPLIT}, "behavior": "Isolated", "invert": False}
        pre = {"type": "Sequence", "pretokenizers": [split, {**level, "use_regex": False}]}
    post: Object | None = None
    if roberta:
        post = {"type": "RobertaProcessing", "sep": _pair(frame["sep"], vocab, files),
                "cls": _pair(frame["cls"], vocab, files), "trim_offsets": True, "add_prefix_space": space}  # fmt: skip
    model = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
        "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": dict(vocab), "merges": merges,
    }  # fmt: skip
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": _added(files, frame, vocab),
        "normalizer": {"type": "NFC"} if files.cls in QWEN2 else None, "pre_tokenizer": pre, "post_processor": post,
        "decoder": {**level, "use_regex": True}, "model": model,
    }  # fmt: skip


def wordpiece(files: Files, lines: list[str]) -> Object:
    """vocab.txt: BERT's. RouteRefused for another class."""
    if files.cls not in BERT:
        raise RouteRefused(
            "vocab.txt does not say how text is cut", file=files.main, member="tokenizer_class",
            expected=", ".join(c for c in BERT if c), found=files.cls, hint="a tokenizer.json says it",
        )  # fmt: skip
    vocab: dict[str, int] = {}
    for i, line in enumerate(lines):
        if vocab.setdefault(line, i) != i:
            raise Corrupt(
                "a token comes twice", file=files.main, member=repr(line), found=f"lines {vocab[line]} and {i}"
            )
    frame = named(files, BERT_FRAME)
    lower = files.config.get("do_lower_case")
    strip = files.config.get("strip_accents")
    normalizer = {
        "type": "BertNormalizer", "clean_text": True, "lowercase": lower if isinstance(lower, bool) else True,
        "handle_chinese_chars": files.config.get("tokenize_chinese_chars") is not False,
        "strip_accents": strip if isinstance(strip, bool) else None,
    }  # fmt: skip
    model = {"type": "WordPiece", "unk_token": frame["unk"], "continuing_subword_prefix": "##",
             "max_input_chars_per_word": 100, "vocab": vocab}  # fmt: skip
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": _added(files, frame, vocab),
        "normalizer": normalizer, "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": _pair(frame["sep"], vocab, files),
                           "cls": _pair(frame["cls"], vocab, files)},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}, "model": model,
    }  # fmt: skip


def _pair(text: str, vocab: Mapping[str, int], files: Files) -> list[object]:
    if text not in vocab:
        raise Corrupt("a special token is none of the vocabulary", file=files.main, member=repr(text))
    return [text, vocab[text]]


def _added(files: Files, frame: Mapping[str, str], vocab: Mapping[str, int]) -> list[object]:
    """The tokens that are taken out of a text before it is cut: special ones, and those that were added."""
    found: dict[int, Object] = {}
    for text in frame.values():
        if text in vocab:
            found[vocab[text]] = added(vocab[text], text, special=True, lstrip=text == "<mask>")
    for text, token in files.added.items():
        found[token] = added(token, text, special=text in frame.values())
    for token, entry in decoder(files).items():
        found[token] = entry
    return [found[token] for token in sorted(found)]


def added(token: int, text: str, *, special: bool, lstrip: bool = False) -> Object:
    """One entry of ``added_tokens``, as tokenizers writes it."""
    return {"id": token, "content": text, "single_word": False, "lstrip": lstrip, "rstrip": False,
            "normalized": not special, "special": special}  # fmt: skip


def decoder(files: Files) -> dict[int, Object]:
    """``added_tokens_decoder`` of tokenizer_config.json by id. Corrupt for an entry that is none."""
    held = files.config.get("added_tokens_decoder")
    found: dict[int, Object] = {}
    if not isinstance(held, dict):
        return found
    for key, entry in held.items():
        text = text_of(entry)
        if not key.isdecimal() or len(key) > 9 or not isinstance(entry, dict) or text is None:
            raise Corrupt(
                "an added token is none", file="tokenizer_config.json", member="added_tokens_decoder",
                found=repr(key)[:40],
            )  # fmt: skip
        base = added(int(key), text, special=entry.get("special") is True)
        flags = {
            k: entry[k] for k in ("single_word", "lstrip", "rstrip", "normalized") if isinstance(entry.get(k), bool)
        }
        found[int(key)] = {**base, **flags}
    return found
