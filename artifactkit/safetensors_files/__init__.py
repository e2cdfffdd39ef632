"""The files of safetensors: laid out, read, and read back, for all formats that consist of them.

https://github.com/huggingface/safetensors, README "Format"; huggingface_hub's naming of shards and index.
"""
