"""Small seeded tokenizers of each kind, trained by `tokenizers` and `sentencepiece`, in folders as models have them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from artifactkit.artifact import KeyValue, TensorView, Weights
from artifactkit.dtypes import BY_NAME
from artifactkit.formats.gguf import FORMAT
from artifactkit.opening import companions
from artifactkit.registry import sniff
from artifactkit.source import Inline
from artifactkit.tokens import build, files, fingerprint, keyvalues, texts
from artifactkit.tokens import pretokenizers as pt
from artifactkit.tokens.files import Files
from artifactkit.tokens.parsed import parse
from artifactkit.tokens.vocabulary import Vocabulary
from artifactkit.types import ReadOptions, WriteOptions

Json = dict[str, Any]
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CHAT = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def corpus() -> Iterator[str]:
    for i in range(6):
        for text in texts.PLAIN:
            yield text if i % 2 else text.lower()
            yield from text.split()


@cache
def byte_level(name: str, size: int = 700, digits: bool = False, normalizer: str = "") -> str:
    """tokenizer.json of a byte-level BPE that cuts text as llama.cpp's ``name``."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tok = Tokenizer(models.BPE())
    cut = pt.CUTS[name]
    if name == "gpt-2":
        tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    elif digits:
        tok.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    else:
        splits = [pre_tokenizers.Split(Regex(e), "isolated") for e in cut.expressions]
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tok.pre_tokenizer = pre_tokenizers.Sequence([*splits, level])
    if normalizer:
        tok.normalizer = getattr(normalizers, normalizer)()
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=CHAT, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tok.train_from_iterator(corpus(), trainer)
    made = json.loads(tok.to_str())
    made["model"]["ignore_merges"] = cut.whole
    return json.dumps(made)


@cache
def wordpiece(lower: bool = True) -> str:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.normalizer = normalizers.BertNormalizer(lowercase=lower)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=600, special_tokens=special, show_progress=False)
    tok.train_from_iterator(corpus(), trainer)
    tok.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", tok.token_to_id("[CLS]")), ("[SEP]", tok.token_to_id("[SEP]"))],
    )  # fmt: skip
    return str(tok.to_str())


@cache
def pieces(kind: str, **more: Any) -> bytes:
    """A sentencepiece model: ``bpe`` as Llama's, ``unigram`` as T5's."""
    import io

    import sentencepiece

    out = io.BytesIO()
    usual: Json = {
        "bpe": {"byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False,
                "split_digits": True, "allow_whitespace_only_pieces": True, "vocab_size": 700},
        "unigram": {"unk_id": 2, "bos_id": -1, "eos_id": 1, "pad_id": 0, "vocab_size": 380},
    }  # fmt: skip
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([t for t in corpus() if t.strip()]), model_writer=out, model_type=kind, num_threads=1,
        minloglevel=2, character_coverage=0.98, **{**usual[kind], **more},
    )  # fmt: skip
    return out.getvalue()


def write(folder: Path, files: Json) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        data = content if isinstance(content, bytes) else (
            content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)).encode()  # fmt: skip
        (folder / name).write_bytes(data)
    return folder


def chat_config(**more: Any) -> Json:
    return {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|im_start|>", "eos_token": "<|im_end|>",
            "pad_token": "<|im_end|>", "unk_token": "<|endoftext|>", **more}  # fmt: skip


def as_transformers(cls: str, folder: Path) -> None:
    """tokenizer.json beside a sentencepiece model, as transformers makes it."""
    import transformers

    getattr(transformers, cls).from_pretrained(str(folder)).save_pretrained(str(folder))


def folder(kind: str, path: Path) -> Path:
    """The folder of one of ``KINDS``."""
    if kind in ("gpt-2", "llama-bpe", "qwen2", "smollm", "gpt-4o", "tekken", "deepseek-v3"):
        text = byte_level(kind, digits=kind == "smollm")
        return write(
            path, {"tokenizer.json": text, "tokenizer_config.json": chat_config(), "chat_template.jinja": TEMPLATE}
        )
    if kind.startswith("bert"):
        return write(path, {"tokenizer.json": wordpiece(kind == "bert"), "tokenizer_config.json": BERT})
    cls = "T5Tokenizer" if kind.startswith("t5") else "LlamaTokenizer"
    model = pieces("unigram" if cls == "T5Tokenizer" else "bpe")
    name = "spiece.model" if cls == "T5Tokenizer" else "tokenizer.model"
    write(path, {name: model, "tokenizer_config.json": T5 if cls == "T5Tokenizer" else LLAMA})
    if kind.endswith("-json"):
        as_transformers(cls, path)
        (path / name).unlink(missing_ok=True)
    return path


BERT = {"tokenizer_class": "BertTokenizer", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]",
        "pad_token": "[PAD]", "mask_token": "[MASK]"}  # fmt: skip
T5 = {"tokenizer_class": "T5Tokenizer", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
LLAMA = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
         "add_bos_token": True, "add_eos_token": False}  # fmt: skip
BYTE_LEVEL = ("gpt-2", "llama-bpe", "qwen2", "smollm", "gpt-4o", "tekken", "deepseek-v3")
KINDS = (*BYTE_LEVEL, "bert", "bert-cased", "t5", "t5-json", "llama", "llama-json")


def vocabulary(
    path: Path, pre: str | None = None, more: int = 0, config: Json | None = None
) -> tuple[Files, Vocabulary]:
    """What artifactkit reads of a folder, for an embedding with ``more`` rows than it has tokens."""
    found = files.read(companions(str(path)))
    assert found is not None
    if found.json is not None:
        parsed = parse(found.json, found.main)
        rows = max(len(parsed.texts), *(a.id + 1 for a in parsed.added), 1)
    else:
        assert found.pieces is not None
        rows = len(found.pieces.texts)
    return found, fingerprint.named(build.vocabulary(found, config or {}, rows + more), found, pre)


def gguf(vocabulary: Vocabulary, path: Path) -> Path:
    """A GGUF file of the vocabulary and one tensor."""
    view = TensorView("token_embd.weight", BY_NAME["f32"], (1, 32), Inline(bytes(128)))
    weights = Weights({view.name: view}, "made")
    weights.keyvalues = (KeyValue("general.architecture", "string", "llama"), *keyvalues.write(vocabulary))
    [out] = FORMAT.write(weights, WriteOptions(path.name)) if FORMAT.write else []
    data = bytearray(out.size)
    for part in out.parts:
        assert isinstance(part.source, Inline)
        data[part.offset : part.offset + part.source.nbytes] = part.source.data
    path.write_bytes(data)
    return path


def pairs(path: Path) -> tuple[KeyValue, ...]:
    fmt, head = sniff(str(path))
    assert fmt.read is not None
    return fmt.read(head, ReadOptions()).keyvalues
