"""tokenizer.json as tokenizers writes it: its parts looked at one by one, each of the type that it must be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..errors import Corrupt
from .files import Object
from .plain import text_of

MAX_TOKENS = 1 << 22
# What a Sequence of each part keeps its members under.
MEMBERS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "post_processor": "processors",
           "decoder": "decoders"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Added:
    """A token that is taken out of the text before it is cut."""

    id: int
    text: str
    special: bool
    normalized: bool


@dataclass(slots=True)
class Parsed:
    """``texts`` are the model's own tokens by id (None where there is none), ``added`` those put in by name."""

    json: Object
    file: str
    model: Object = field(default_factory=dict)
    kind: str = ""  # BPE, WordPiece, Unigram, or what else it says
    texts: list[str | None] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)  # of Unigram
    merges: list[tuple[str, str]] = field(default_factory=list)  # of BPE
    added: list[Added] = field(default_factory=list)

    def parts(self, of: str) -> list[Object]:
        """The normalizers, pre-tokenizers, processors or decoders in their order, sequences resolved."""
        return list(_flat(self.json.get(of), MEMBERS[of], self.file, of))

    def types(self, of: str) -> list[str]:
        return [str(part.get("type")) for part in self.parts(of)]


def _flat(part: object, members: str, file: str, of: str, depth: int = 0) -> Iterator[Object]:
    if part is None:
        return
    if not isinstance(part, dict) or depth > 16:
        raise Corrupt(f"the {of} is none", file=file, member=of, found=repr(part)[:60])
    if part.get("type") != "Sequence":
        yield part
        return
    inner = part.get(members)
    if not isinstance(inner, list):
        raise Corrupt("a sequence without members", file=file, member=f"{of}.{members}", found=repr(inner)[:60])
    for member in inner:
        yield from _flat(member, members, file, of, depth + 1)


def parse(json: Object, file: str) -> Parsed:
    """``json`` looked through. Raises Corrupt, with the member, for what tokenizers would not load either."""
    model = json.get("model")
    if not isinstance(model, dict):
        raise Corrupt("the file has no model", file=file, member="model", expected="an object", found=repr(model)[:60])
    found = Parsed(json, file, model)
    vocab = model.get("vocab")
    kind = model.get("type")
    if kind is None:  # older files
        kind = "BPE" if "merges" in model else "Unigram" if isinstance(vocab, list) else "WordPiece"
    found.kind = str(kind)
    if isinstance(vocab, list):
        _scored(vocab, found)
    elif isinstance(vocab, dict):
        _plain(vocab, found)
    else:
        raise Corrupt("the model has no vocabulary", file=file, member="model.vocab", found=repr(vocab)[:60])
    if found.kind == "BPE":
        _merges(model.get("merges"), found)
    _added(json.get("added_tokens"), found)
    return found


def _scored(vocab: list[object], found: Parsed) -> None:
    for i, item in enumerate(vocab):
        text, score = item if isinstance(item, list) and len(item) == 2 else (None, None)
        if not isinstance(text, str) or isinstance(score, bool) or not isinstance(score, int | float):
            raise Corrupt(
                "a token without text or score", file=found.file, member=f"model.vocab[{i}]", found=repr(item)[:60]
            )
        if not abs(score) < 1e30:
            raise Corrupt("a score out of range", file=found.file, member=f"model.vocab[{i}]", found=score)
        found.texts.append(text)
        found.scores.append(float(score))


def _plain(vocab: Object, found: Parsed) -> None:
    count = len(vocab)
    texts: list[str | None] = []
    for text, token in vocab.items():
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < MAX_TOKENS:
            raise Corrupt(
                "a token's id is none", file=found.file, member=f"model.vocab {text!r}", found=repr(token)[:40]
            )
        if token >= len(texts):
            if token > 4 * count + 65536:
                raise Corrupt(
                    "ids with more holes than tokens", file=found.file, member=f"model.vocab {text!r}",
                    expected=f"about {count} ids", found=token,
                )  # fmt: skip
            texts.extend([None] * (token + 1 - len(texts)))
        if texts[token] is not None:
            raise Corrupt("two tokens have one id", file=found.file, member=f"model.vocab {text!r}", found=token)
        texts[token] = text
    found.texts = texts


def _merges(merges: object, found: Parsed) -> None:
    if not isinstance(merges, list):
        raise Corrupt("the model has no merges", file=found.file, member="model.merges", found=repr(merges)[:60])
    for i, item in enumerate(merges):
        pair = item.split(" ") if isinstance(item, str) else item
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(p, str) for p in pair):
            raise Corrupt("a merge is no pair", file=found.file, member=f"model.merges[{i}]", found=repr(item)[:60])
        found.merges.append((pair[0], pair[1]))


def _added(entries: object, found: Parsed) -> None:
    if entries is None:
        return
    if not isinstance(entries, list):
        raise Corrupt("added tokens are no list", file=found.file, member="added_tokens", found=repr(entries)[:60])
    for i, entry in enumerate(entries):
        text = text_of(entry)
        token = entry.get("id") if isinstance(entry, dict) else None
        if text is None or isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < MAX_TOKENS:
            raise Corrupt(
                "an added token is none", file=found.file, member=f"added_tokens[{i}]", found=repr(entry)[:60]
            )
        flags = entry.get("special") is True, entry.get("normalized") is True
        found.added.append(Added(token, text, *flags))
