"""A file as it is at a revision of git, without a checkout: the policy that a change under review cannot alter."""

from __future__ import annotations

import os

from ..errors import UsageError

SECONDS = 60


def blob(path: str, ref: str) -> bytes | None:
    """The content of ``path`` (relative to the current folder, or absolute) at ``ref``; None when it is not there.

    UsageError when git, the repository or the revision is not to be had: then nobody knows what is allowed.
    """
    if not ref or ref.startswith("-") or "\0" in ref or ":" in ref:
        raise UsageError(f"not a revision: {ref!r}", hint="a branch, tag or commit: --policy-ref origin/main")
    folder, name = os.path.split(os.path.abspath(path))
    commit = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    if commit is None:
        hint = "fetch it first (actions/checkout: fetch-depth: 0; GitLab: GIT_DEPTH: 0)"
        if _git(folder, "rev-parse", "--git-dir") is None:
            hint = "run it in a checkout of git"
        raise UsageError(f"git has no revision {ref!r} here", hint=hint)
    revision = commit.decode("ascii").strip()
    listed = _git(folder, "ls-tree", "-z", revision, "--", name)
    if listed is None:
        raise UsageError(f"git cannot list {ref!r}", file=path)
    if not listed:
        return None
    mode, kind, digest = listed.partition(b"\t")[0].decode("ascii").split()
    if kind != "blob" or mode == "120000":  # a folder, or a link to somewhere else
        return None
    data = _git(folder, "cat-file", "blob", digest)
    if data is None:
        raise UsageError(f"git cannot read the policy at {ref!r}", file=path, hint="fetch it first, with its files")
    return data


def _git(folder: str, *args: str) -> bytes | None:
    """What git prints; None when it ends with an error. For these it fetches nothing, and runs no hook or filter."""
    import subprocess

    environment = os.environ | {"GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            ["git", "-c", "core.fsmonitor=false", *args], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"git cannot be run: {error}", hint="--policy-ref needs git on the PATH") from error
    return done.stdout if done.returncode == 0 else None
