"""How text becomes tokens: read from what stands beside a checkpoint, written as GGUF's key-values, and led back.

``files`` reads what is there, ``build`` makes a ``Vocabulary`` of it, ``keyvalues`` writes and reads that one as
``tokenizer.*`` pairs, ``huggingface`` makes a tokenizer.json of it. ``library`` asks the package `tokenizers`, in a
child process, for ids; ``fingerprint`` names the pre-tokenizer; ``compare`` judges llama.cpp's ids by the library's.
"""
