"""The rules that every format shares, and the way to all of them by id.

A rule module holds its own: a tuple ``RULES``, and ``scan(piece, kind)``. docs/safety.md has a section for each; a test
compares, and demands a hostile file and a benign twin for each.
"""

from __future__ import annotations

import importlib

from .model import Rule

UNREADABLE = Rule(
    "unreadable",
    "unreadable",
    "the file could not be scanned to its end",
    "what was not read may hold anything; other readers may read on where this one stops",
    "get the file again from its producer; treat it as unsafe until then",
)
LIMIT = Rule(
    "limit",
    "unreadable",
    "reading on would take memory or time out of proportion",
    "a bomb, or a way to make a scanner give up before the part that matters",
    "do not open the file with anything that has no such limits",
)
CONTENT_ABSENT = Rule(
    "content-absent",
    "unreadable",
    "the file is a pointer: its content is not here",
    "Git LFS and DVC keep a few lines of text in the place of the content",
    "fetch the content (git lfs pull, dvc pull) and scan again",
)
SCANNER_FAULT = Rule(
    "scanner-fault",
    "unreadable",
    "a fault of the scanner itself",
    "a file that ends the scanner early could hide what comes after",
    "report it together with the file; treat the file as unsafe until then",
)
POLICY_CHANGED = Rule(
    "policy-changed",
    "suspicious",
    "the policy allows more than it does at the revision given by --policy-ref",
    "a change that brings a file could bring the permission for it too; unreviewed, the permission does not count",
    "have the entry of the policy reviewed and merged first, and the file after it",
)
# No file leads to these: they are about the scanner, and about the policy it was given.
NOT_OF_FILES = (SCANNER_FAULT, POLICY_CHANGED)
RULES = (UNREADABLE, LIMIT, CONTENT_ABSENT, *NOT_OF_FILES)


def all_rules() -> dict[str, Rule]:
    """Every rule by id, in order of id. Imports every rule module: for ``--explain`` and SARIF, not for a scan."""
    from .detect import MODULES

    found = {rule.id: rule for rule in RULES}
    for name in sorted(set(MODULES.values())):
        module = importlib.import_module(f"{__package__}.{name}")
        for rule in module.RULES:
            if found.setdefault(rule.id, rule) is not rule:
                raise ValueError(f"two rules are called {rule.id}")
    return dict(sorted(found.items()))
