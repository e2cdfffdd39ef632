"""Talking to the hub through huggingface_hub's own client: its endpoint, proxies, certificates and tokens.

Only what the library gives no bounds for is done here: answers are read up to a limit, faults that pass are tried
again a few times, and every failure becomes one of our errors. The words of the library's errors are never repeated:
they may hold signed addresses.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

from .. import __version__
from ..errors import ArtifactkitError, Corrupt, LimitExceeded, OutputError, Unreadable

if TYPE_CHECKING:
    import threading

TRIES = 5
FIRST_WAIT = 0.2  # seconds, doubled with each try
LONGEST_WAIT = 30.0  # seconds that a Retry-After may ask for; beyond, the user is told to come back
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
MAX_ANSWER = 32 << 20  # bytes of one page of a listing

LOG_IN = "log in with: hf auth login"
T = TypeVar("T")


class Unreached(Unreadable):
    """The hub could not be reached, or is down: what is in the cache may still serve."""

    code = "hub-unreached"


def offline() -> bool:
    """Whether the user has forbidden connections (HF_HUB_OFFLINE)."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def endpoint() -> str:
    """Where the hub is, without a slash at the end (HF_ENDPOINT)."""
    from huggingface_hub import constants

    return constants.ENDPOINT


def resolve_url(repo: str, commit: str, name: str) -> str:
    """The address of one file at one commit."""
    return f"{endpoint()}/{repo}/resolve/{commit}/{quote(name)}"


def library() -> Any:
    """``huggingface_hub.utils``, whose names appear when they are asked for, so that no type checker sees them."""
    from huggingface_hub import utils

    return utils


def headers(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """What every request says: who we are, and the token from huggingface_hub's own places."""
    made: dict[str, str] = library().build_hf_headers(library_name="artifactkit", library_version=__version__)
    return made | {"Accept-Encoding": "identity"} | dict(extra or {})


def transport_errors() -> tuple[type[Exception], ...]:
    """What the HTTP client raises when there is no answer. It is another package in each major version of the library.

    An address, or a header such as a token, that the client cannot even send is a ValueError.
    """
    from huggingface_hub.errors import HfHubHTTPError

    return (HfHubHTTPError.__bases__[0], ConnectionError, TimeoutError, ValueError)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the library's log off the screen, addresses of downloads and all, unless the user has asked for it."""
    if os.environ.get("HF_DEBUG") or os.environ.get("HF_HUB_VERBOSITY"):
        yield
        return
    logging = library().logging
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def attempt(what: str, work: Callable[[], T], stop: threading.Event | None = None, most: int = TRIES) -> T:
    """``work()``, again while its faults are of the kind that passes, a bounded number of times.

    ``what`` names the place in errors. Raises Unreached, or what ``refused`` makes of an answer.
    """
    from huggingface_hub.errors import HfHubHTTPError

    last: Exception | None = None
    for tries in range(most):
        try:
            with quiet():
                return work()
        except HfHubHTTPError as error:
            status = error.response.status_code
            if status not in PASSING:
                raise refused(error, what) from error
            last = error
            wait = max(FIRST_WAIT * 2**tries, retry_after(error))
            if wait > LONGEST_WAIT:
                break
        except ArtifactkitError:
            raise
        except transport_errors() as error:
            last = error
            wait = FIRST_WAIT * 2**tries
            if isinstance(error, ValueError):
                break
            if _no_connection(error) and tries >= 1:
                break  # nobody is there: a second look is enough
        if tries + 1 < most and not (stop is not None and stop.is_set()):
            time.sleep(wait)
    assert last is not None
    raise gave_up(last, what) from last


def _no_connection(error: Exception) -> bool:
    return type(error).__name__ in ("ConnectError", "ConnectTimeout", "ConnectionRefusedError", "OfflineModeIsEnabled")


def retry_after(error: Any) -> float:
    """Seconds that the answer asks to wait; 0 where it asks for none."""
    try:
        return max(0.0, float(error.response.headers.get("Retry-After", 0)))
    except ValueError:  # a date
        return 0.0


def gave_up(error: Exception, what: str) -> ArtifactkitError:
    """The error after the last try."""
    response = getattr(error, "response", None)
    if response is not None:
        status = response.status_code
        if status == 429:
            asked = retry_after(error)
            hint = f"try again in {asked:.0f} seconds" if asked else "try again later"
            return Unreached("the hub answers that there were too many requests", file=what, found="429",
                             hint=f"{hint}; {LOG_IN}, which allows more")  # fmt: skip
        return Unreached("the hub does not work at the moment", file=what, found=status, hint="try again later")
    if isinstance(error, ValueError):
        return Unreadable(
            "the request cannot be sent", file=what,
            hint="HF_ENDPOINT, a proxy or the token holds what no request can: check them",
        )  # fmt: skip
    host = urlsplit(endpoint()).hostname or endpoint()
    return Unreached(
        "the hub cannot be reached", file=what, found=f"no answer from {host}",
        hint="check the connection; what is in the cache can be used at its commit",
    )  # fmt: skip


def refused(error: Any, what: str) -> ArtifactkitError:
    """Our error for an answer that says no. ``what`` is the address of the repository or file."""
    from huggingface_hub import errors

    status = error.response.status_code
    repo = "/".join(what.removeprefix("hf://").split("/")[:2]).partition("@")[0]
    page = f"{endpoint()}/{repo}"
    if isinstance(error, errors.GatedRepoError):
        return Unreadable("access to this model is gated", file=what, found=status,
                          hint=f"accept its licence on {page}, then {LOG_IN}")  # fmt: skip
    if isinstance(error, errors.DisabledRepoError):
        return Unreadable("this model was disabled on the hub", file=what, hint=f"{page} says more")
    if isinstance(error, errors.RevisionNotFoundError):
        return Unreadable("no such branch, tag or commit", file=what, hint=f"{page}/commits/main lists commits")
    if isinstance(error, errors.EntryNotFoundError):
        return Unreadable("no such file in this revision", file=what, hint=f"{page}/tree/main lists the files")
    message = str(error.response.headers.get("X-Error-Message", ""))
    if status == 401 and message.startswith("Invalid"):
        return Unreadable("the hub does not take the token", file=what, found=status, hint=LOG_IN)
    if isinstance(error, errors.RepositoryNotFoundError) or status in (401, 404):
        return Unreadable("no such model, or a private one", file=what, found=status,
                          hint=f"check the name; if it is private, {LOG_IN}")  # fmt: skip
    if status == 403:
        return Unreadable("the hub forbids access", file=what, found=status,
                          hint=f"the token lacks the permission: {page}")  # fmt: skip
    return Unreadable("the hub refuses", file=what, found=f"status {status}")


def timeout() -> float:
    """Seconds to wait for an answer, or for its next bytes (HF_HUB_DOWNLOAD_TIMEOUT)."""
    from huggingface_hub import constants

    return float(constants.HF_HUB_DOWNLOAD_TIMEOUT)


def get_json(url: str, what: str, params: Mapping[str, str] | None = None) -> tuple[Any, str | None]:
    """(the document at ``url``, the address of the next page or None). Corrupt for what is no JSON."""

    def ask() -> tuple[bytes, str | None]:
        with (
            library()
            .get_session()
            .stream(
                "GET", url, params=dict(params) if params else None, headers=headers(), timeout=timeout()
            ) as response
        ):
            if response.status_code >= 400:
                read_bounded(response, 1 << 20)
            library().hf_raise_for_status(response)
            return read_bounded(response, MAX_ANSWER), response.links.get("next", {}).get("url")

    import json

    body, following = attempt(what, ask)
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Corrupt(
            "the hub's answer is no JSON", file=what, hint="check HF_ENDPOINT, and whether a proxy answers instead"
        ) from error
    if following is not None and urlsplit(following)[:2] != urlsplit(url)[:2]:
        # The next page would be asked for with the token.
        raise Corrupt("the hub's listing goes on at another host", file=what, found=urlsplit(following).netloc)
    return document, following


def read_bounded(response: Any, limit: int) -> bytes:
    """The body of a streamed answer; LimitExceeded beyond ``limit`` bytes."""
    found = bytearray()
    for chunk in response.iter_bytes():
        found += chunk
        if len(found) > limit:
            raise LimitExceeded("the hub's answer is too long", expected=f"at most {limit} bytes")
    return bytes(found)


def not_stored(error: OSError, what: str) -> OutputError:
    """The cache could not be written."""
    return OutputError(
        f"cannot write to huggingface_hub's cache: {error.strerror}", file=what,
        hint="free some space, or set HF_HOME to a folder with room",
    )  # fmt: skip
