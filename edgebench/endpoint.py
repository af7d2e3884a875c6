"""A chat endpoint: where a model answers over HTTP, and what decides its answers.

Options arrive as text, from the command line or from a program, and are checked here, once.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from edgebench.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY_VARIABLE = "EDGEBENCH_API_KEY"
_JPEG = re.compile(r"jpeg:(\d{1,3})")


@dataclass(frozen=True)
class Endpoint:
    """What decides an answer besides the questions."""

    base_url: str
    """Such as 'https://api.openai.com/v1'; requests go to its `/chat/completions`."""
    model: str
    """As the server names it."""
    image: str = "png"
    """How pictures are encoded: 'png', or 'jpeg:QUALITY'."""
    max_side: int | None = None
    """Pictures with a longer side are made smaller, to that side; None sends them in their own size."""

    @property
    def passport(self) -> str:
        """How pictures are sent, in words: runs that differ here saw other pixels."""
        return f"{self.image}, {'own size' if self.max_side is None else f'longest side {self.max_side}'}"


@dataclass(frozen=True)
class Asking:
    """How an endpoint is asked. It decides no answer, so a run may be continued otherwise."""

    key_variable: str = KEY_VARIABLE
    """The environment variable that holds the key. The key itself is kept nowhere."""
    at_once: int = 1
    """Requests under way at the same time."""
    timeout_s: float = 120.0
    """A request that has not ended then is given up: at its next byte, or when as long again nothing came."""
    retries: int = 8
    """How often a request is sent again after 429, 5xx, a timeout or a damaged answer."""
    prices: tuple[float, float] | None = None
    """Of a million tokens, read and written; None where nobody said."""


def endpoint_of(options: Mapping[str, str]) -> tuple[Endpoint, Asking]:
    """What the options `base_url`, `model`, `image`, `max_side`, `key_env`, `at_once`, `timeout`, `retries` and
    `price` say.

    Raises:
        UsageError: one is missing or cannot be.
    """
    missing = [f"--{name.replace('_', '-')}" for name in ("base_url", "model") if not options.get(name)]
    if missing:
        raise UsageError(
            f"the engine 'api' needs {' and '.join(missing)}",
            hint="such as --base-url http://127.0.0.1:8080/v1 --model NAME",
        )
    image = options.get("image", "png").lower()
    jpeg = _JPEG.fullmatch(image)
    if image != "png" and (jpeg is None or not 1 <= int(jpeg[1]) <= 100):
        raise UsageError(f"--image {image!r} is no encoding", hint="png, or jpeg:QUALITY with a quality of 1 to 100")
    endpoint = Endpoint(
        base_url=_checked_url(options["base_url"]),
        model=options["model"],
        image=image,
        max_side=_count(options, "max_side", None),
    )
    asking = Asking(
        key_variable=options.get("key_env", KEY_VARIABLE),
        at_once=_count(options, "at_once", 1) or 1,
        timeout_s=_positive(options.get("timeout", "120"), "--timeout"),
        retries=_count(options, "retries", 8, least=0) or 0,
        prices=_prices(options.get("price")),
    )
    return endpoint, asking


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _checked_url(text: str) -> str:
    """Without a slash at its end, and without anything that could be a secret: it stands in every report."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"--base-url is no address: {error}") from error
    if parts.scheme not in {"http", "https"} or not host:
        raise UsageError("--base-url should begin with https://, or http://, and name a host")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UsageError(
            f"--base-url for {host} holds a user name, a password or a query, and would stand in every report",
            hint=f"put the key into the environment variable {KEY_VARIABLE}",
        )
    return text.rstrip("/").removesuffix("/chat/completions")


def _count(options: Mapping[str, str], name: str, default: int | None, *, least: int = 1) -> int | None:
    text = options.get(name)
    if text is None:
        return default
    if not text.isdecimal() or int(text) < least:
        raise UsageError(f"--{name.replace('_', '-')} {text!r} should be a whole number, at least {least}")
    return int(text)


def _positive(text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise UsageError(f"{name} {text!r} should be a number of seconds above 0")
    return value


def _prices(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        read, written = (float(part) for part in text.split(":"))
    except ValueError:
        read = written = -1.0
    if not (0 <= read < float("inf") and 0 <= written < float("inf")):
        raise UsageError(f"--price {text!r} should be READ:WRITTEN, the prices of a million tokens, such as 2.5:10")
    return read, written
