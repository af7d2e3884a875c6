"""One request to a chat endpoint, and what can come back: a reply, a stream of it, an error, or something else.

Whatever a server sends is taken for hostile: it is bounded in bytes and in time, each field's type is looked at, and
no redirect is followed, so that a key is never sent to another host than the one it was given for.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from edgebench.engines.base import Said, Unavailable
from edgebench.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LARGEST = 16 << 20
"""Bytes of a reply."""
SHOWN = 300
"""Characters of a server's own words in an error."""
AGAIN = {408, 409, 425, 429}
"""States that may pass, with all from 500 on."""
HOPELESS = {401, 402, 403, 404, 405, 410}
"""States that the next question would meet too."""
SPENT = ("insufficient_quota", "billing_hard_limit_reached")
"""Codes of a 429 that waiting does not help."""
REFUSED = (
    *("content_filter", "content_policy_violation", "responsibleaipolicyviolation", "data_inspection_failed"),
    *("requires moderation", "prohibited_content"),
)
"""Codes and words by which services refuse a request for what it shows (OpenAI, Azure, Alibaba, OpenRouter, Gemini)."""
FINISHES = {"stop": "stop", "end_turn": "stop", "eos": "stop", "length": "length", "max_tokens": "length"}
FINISHES |= dict.fromkeys(("content_filter", "refusal", "safety", "prohibited_content", "recitation"), "refused")
"""A server's word for why a text ended -> ours."""


class Passing(Exception):
    """What may be otherwise the next time."""

    def __init__(self, reason: str, wait_s: float = 0.0, *, unreached: bool = False) -> None:
        super().__init__(reason)
        self.wait_s = wait_s
        """At least so long, as the server asks."""
        self.unreached = unreached
        """Whether nobody was there."""


class Rejected(Exception):
    """The server does not take this request."""

    def __init__(self, reason: str, parameter: str = "") -> None:
        super().__init__(reason)
        self.parameter = parameter
        """The parameter that the server names."""


class _Refused(Exception):
    """The service refuses the request for what it shows: an answer of its own kind."""


class Secret:
    """A key: it goes into one header, and out of every text that came from outside."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __repr__(self) -> str:
        return "Secret()"

    def headers(self) -> dict[str, str]:
        """For the endpoint's own host."""
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    def clean(self, text: str) -> str:
        """The text without the key. A word as short as 'none' is no key."""
        for form in (self._key, quote(self._key, safe="")):
            if len(form) >= 8:
                text = text.replace(form, "[key]")
        return text


@dataclass
class _Reply:
    """What has come so far."""

    text: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    finish: str | None = None
    first: tuple[tuple[str, float], ...] | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    model: str | None = None
    thought: bool = False
    """Whether thoughts were sent."""

    def said(self) -> Said:
        """The reply.

        Raises:
            Passing: it has not ended.
        """
        text, refusal = "".join(self.text), "".join(self.refusal)
        if self.finish is None and not refusal:
            raise Passing("the answer broke off")
        details = _mapping(self.usage.get("completion_tokens_details"))
        return Said(
            text=text or refusal,
            finish="refused" if refusal else self.finish,
            first=self.first,
            prompt_tokens=_count(self.usage.get("prompt_tokens")),
            output_tokens=_count(self.usage.get("completion_tokens")),
            unseen_tokens=None if self.thought else _count(details.get("reasoning_tokens")),
            model=self.model,
        )

    def take(self, value: Any, part: str) -> bool:
        """One whole reply ('message'), or one event of a stream ('delta'). Whether it brought text of any kind.

        Raises:
            Passing: it is an error, or no reply.
            Rejected: it is an error of this request.
        """
        if not isinstance(value, dict):
            raise Passing("the answer is no JSON object")
        if value.get("error"):
            code = _mapping(value["error"]).get("code")
            raise _error_of(value, code if type(code) is int and 400 <= code < 600 else 500)
        self.usage = _mapping(value.get("usage")) or self.usage
        if isinstance(value.get("model"), str):
            self.model = value["model"][:200]
        choices = value.get("choices")
        if not isinstance(choices, list) or not all(isinstance(c, dict) for c in choices):
            raise Passing("the answer has no choices")
        if not choices:
            if part == "message":
                raise Passing("the answer has no choices")
            return False
        choice = choices[0]
        message = _mapping(choice.get(part))
        text, refusal = _text(message.get("content")), _text(message.get("refusal"))
        thought = _text(message.get("reasoning_content")) or _text(message.get("reasoning"))
        self.text.append(text)
        self.refusal.append(refusal)
        self.thought = self.thought or bool(thought)
        if self.first is None:
            self.first = _likeliest(choice.get("logprobs"))
        finish = choice.get("finish_reason")
        if isinstance(finish, str) and finish:
            self.finish = FINISHES.get(finish.lower(), "other")
        return bool(text or refusal or thought)


def request(
    client: Any, url: str, body: dict[str, Any], timeout_s: float, secret: Secret, note: Callable[[str], None]
) -> Said:
    """Send one request and read its reply.

    Args:
        client: an `httpx2.Client`.
        url: of `/chat/completions`.
        body: JSON.
        timeout_s: from the beginning to the last byte.
        secret: for the header.
        note: as in `edgebench.engines.base.Chat.chat`.

    Raises:
        Passing: it may be otherwise the next time.
        Rejected: this request is not taken.
        Unavailable: no request would be.
    """
    import httpx2

    end = time.monotonic() + timeout_s
    headers = {**secret.headers(), "Accept": "text/event-stream, application/json"}
    note("sent")
    try:
        with client.stream("POST", url, json=body, headers=headers) as response:
            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            chunks = _bounded(response.iter_bytes(), end)
            if response.status_code == 200 and kind == "text/event-stream":
                return _streamed(chunks, secret, note)
            text = secret.clean(b"".join(chunks).decode(errors="replace"))
            if response.status_code != 200:
                raise _failure(response, text)
            return _whole(text, kind)
    except _Refused as refusal:
        return Said(text=str(refusal), finish="refused")
    except httpx2.TimeoutException as error:
        raise Passing(f"no answer within {timeout_s:g} s") from error
    except httpx2.ConnectError as error:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            raise Unavailable(
                f"the certificate of {urlsplit(url).hostname} is not trusted: {one_line(error)}"
            ) from error
        raise Passing(f"{urlsplit(url).netloc} cannot be reached: {one_line(error)}", unreached=True) from error
    except (httpx2.TransportError, httpx2.DecodingError) as error:
        raise Passing(f"the connection broke: {one_line(error)}") from error


def _bounded(chunks: Iterator[bytes], end: float) -> Iterator[bytes]:
    """The chunks, as long as they are few and in time: the client's own timeouts are for each chunk."""
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > LARGEST:
            raise Passing(f"the answer has more than {LARGEST >> 20} MiB")
        if time.monotonic() > end:
            raise Passing("the answer took too long")
        yield chunk


def _whole(text: str, kind: str) -> Said:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        what = "a web page" if kind == "text/html" or text.lstrip().startswith("<") else "no JSON"
        raise Passing(f"the answer is {what if text else 'empty'}") from error
    reply = _Reply()
    reply.take(value, "message")
    if reply.finish is None:
        # Some servers give none; the text is whole all the same.
        reply.finish = "stop"
    return reply.said()


def _streamed(chunks: Iterator[bytes], secret: Secret, note: Callable[[str], None]) -> Said:
    """Server-sent events, each with a piece; the end is '[DONE]', or the connection's."""
    reply, begun = _Reply(), False
    for data in _events(chunks):
        if data == b"[DONE]":
            break
        try:
            value = json.loads(secret.clean(data.decode(errors="replace")))
        except (ValueError, RecursionError) as error:
            raise Passing("an event of the answer is no JSON") from error
        if reply.take(value, "delta") and not begun:
            begun = True
            note("first")
    return reply.said()


def _events(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The data of each event. Other fields, comments and events of no data are left out."""
    rest, data = b"", []
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in (line.rstrip(b"\r") for line in lines):
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                yield b"\n".join(data)
                data = []
    if rest.startswith(b"data:"):
        data.append(rest[5:].strip())
    if data:
        yield b"\n".join(data)


def _failure(response: Any, text: str) -> Exception:
    """What a state other than 200 means."""
    state, host = response.status_code, response.url.host
    if 300 <= state < 400:
        to = urlsplit(response.headers.get("location", "")).hostname or host
        return Unavailable(
            f"{host} sends on to {to} ({state}), and no redirect is followed",
            hint="pass the address that answers as --base-url",
        )
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, list) and value:  # Gemini's errors come in a list
        value = value[0]
    wait = _wait_s(response.headers)
    if isinstance(value, dict):
        return _error_of(value, state, wait)
    words = " ".join(text.split())
    return _by_state(state, "a web page" if words.startswith("<") else words[:SHOWN], "", wait)


def _error_of(value: dict[str, Any], state: int, wait: float = 0.0) -> Exception:
    """What an error in JSON means."""
    error = value.get("error")
    error = error if isinstance(error, dict) else {"message": error or json.dumps(value)}
    message = " ".join(str(error.get("message") or json.dumps(error)).split())[:SHOWN]
    words = f"{error.get('code')} {error.get('type')} {message}".lower()
    if any(word in words for word in REFUSED):
        return _Refused(message)
    if any(word in words for word in SPENT):
        return Unavailable(f"the account has nothing left: {message}")
    return _by_state(state, message, str(error.get("param") or ""), wait)


def _by_state(state: int, message: str, parameter: str, wait: float) -> Exception:
    said = f"{state}: {message}" if message else str(state)
    if state == 401 or "api key" in message.lower():  # Gemini says it with a 400
        return Unavailable(f"the key is not accepted ({state})", hint="check the variable that --key-env names")
    if state in HOPELESS:
        return Unavailable(f"the server says {said}", hint="check --base-url, --model and the key's rights")
    if state in AGAIN or state >= 500:
        return Passing(f"the server says {said}", wait)
    return Rejected(f"the server says {said}", parameter)


def cleaned(said: Said, secret: Secret) -> Said:
    """Without the key, should a server send it back."""
    first = said.first and tuple((secret.clean(token), value) for token, value in said.first)
    model = None if said.model is None else secret.clean(said.model)
    return replace(said, text=secret.clean(said.text), first=first, model=model)


def _wait_s(headers: Any) -> float:
    """What Retry-After asks for, in seconds or as a date; 0 where it asks nothing."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        text = headers.get(name, "")
        try:
            return min(max(0.0, float(text) / unit), 1e9)
        except ValueError:
            pass
    try:
        when = parsedate_to_datetime(headers.get("retry-after", ""))
    except (TypeError, ValueError):
        return 0.0
    when = when if when.tzinfo is not None else when.replace(tzinfo=timezone.utc)
    return max(0.0, (when - datetime.now(timezone.utc)).total_seconds())


def _likeliest(value: Any) -> tuple[tuple[str, float], ...] | None:
    """The first token's `top_logprobs`; None where the server gives none."""
    content = _mapping(value).get("content")
    if not isinstance(content, list) or not content:
        return None
    rows = _mapping(content[0]).get("top_logprobs")
    found = []
    for row in rows if isinstance(rows, list) else []:
        token, logprob = _mapping(row).get("token"), _mapping(row).get("logprob")
        if isinstance(token, str) and isinstance(logprob, int | float) and logprob <= 1e-3:
            found.append((token, min(0.0, float(logprob))))
    return tuple(found) or None


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    """A text, or the texts of a list of parts."""
    if isinstance(value, list):
        return "".join(_text(_mapping(part).get("text")) for part in value)
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**53 else None
