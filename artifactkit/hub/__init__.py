"""Models on the hub, at exactly one commit: ``hf://owner/name[@revision][/path]``.

``parse`` takes an address apart; ``mount`` resolves its revision to a commit, once, and mounts that commit as a tree
(``artifactkit.trees``). Every file then comes from that commit: headers in ranges, and whole files through
huggingface_hub's own client and cache, each verified against the digest that the hub states before it is used.
"""

from .address import FORM, SCHEME, Address, parse
from .tree import HubTree, inside, mount

__all__ = ["FORM", "SCHEME", "Address", "HubTree", "inside", "mount", "parse"]
