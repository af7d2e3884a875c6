"""Any chat endpoint that speaks OpenAI's protocol: hosted models by their compatible endpoints, vLLM, llama.cpp, Ollama.

Its latency is an API's and not a device's: network, queue and whatever stands behind the endpoint are in it.
"""

from __future__ import annotations

import base64
import os
import random
import re
import threading
import time
from typing import TYPE_CHECKING, Any

from edgebench import __version__
from edgebench.endpoint import endpoint_of, is_loopback
from edgebench.engines.api_wire import Passing, Rejected, Secret, cleaned, request
from edgebench.engines.base import Said, Unavailable
from edgebench.errors import EngineError, MissingExtraError, UsageError
from edgebench.media.encode import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

    import numpy as np
    from numpy.typing import NDArray

    from edgebench.manifest import Artifact
    from edgebench.profiles import DeviceProfile

FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 60.0
"""Before the first further try, doubled from one to the next, each shortened by up to a half at random."""
PATIENCE_S = 300.0
"""A server that asks for a longer wait ends the run."""
CONNECT_S = 10.0
LIKELIEST = (20, 5)
"""How many likeliest tokens are asked for: the most that OpenAI gives, then what others do."""


class ApiEngine:
    """One model behind one endpoint."""

    remote = True

    def __init__(self, artifact: Artifact | None, profile: DeviceProfile, options: dict[str, str]) -> None:
        if artifact is not None:
            raise UsageError("the engine 'api' takes no artifact: its model is behind --base-url")
        self.endpoint, self.asking = endpoint_of(options)
        self.at_once = self.asking.at_once
        self._url = f"{self.endpoint.base_url}/chat/completions"
        self._secret = Secret("")
        self._client: Any = None
        self._lock = threading.Lock()
        self._answered = False
        # What the endpoint turns out not to take is left out from then on.
        self._parameters: dict[str, Any] = {
            "max_tokens": None,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "logprobs": True,
            "top_logprobs": LIKELIEST[0],
        }

    def __enter__(self) -> Self:
        try:
            import httpx2
        except ImportError as error:
            raise MissingExtraError(
                "the engine 'api' needs the package httpx2", hint="pip install 'edgebench[api]'"
            ) from error
        self._secret = self._read_key(httpx2.URL(self._url))
        self._client = httpx2.Client(
            headers={"User-Agent": f"edgebench/{__version__}"},
            timeout=httpx2.Timeout(self.asking.timeout_s, connect=min(CONNECT_S, self.asking.timeout_s)),
            limits=httpx2.Limits(max_connections=self.at_once, max_keepalive_connections=self.at_once),
            follow_redirects=False,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def facts(self) -> dict[str, Any]:
        """Who is asked and how; of the key only whether there is one."""
        import httpx2

        has_key = bool(self._secret.headers())
        with self._lock:
            parameters = {k: v for k, v in self._parameters.items() if v is not None}
        return {
            "engine": "api",
            "latency": "an API's, not a device's: network and queue included",
            "httpx2": httpx2.__version__,
            "key": f"from {self.asking.key_variable}" if has_key else "none",
            "parameters": parameters,
            "pictures": self.endpoint.passport,
            "at_once": self.at_once,
            "timeout_s": self.asking.timeout_s,
            "retries": self.asking.retries,
            "prices_per_million": None if self.asking.prices is None else list(self.asking.prices),
        }

    def chat(
        self,
        messages: Sequence[dict[str, Any]],
        pictures: Sequence[NDArray[np.uint8]],
        *,
        max_new_tokens: int,
        note: Callable[[str], None] = lambda what: None,
    ) -> Said:
        """As `edgebench.engines.base.Chat`; sent again after what may pass, at most `retries` times."""
        asked = {"model": self.endpoint.model, "messages": self._messages(messages, pictures)}
        reason = ""
        for attempt in range(self.asking.retries + 1):
            try:
                said = self._send(asked, max_new_tokens, note)
            except Passing as passing:
                reason = self._secret.clean(str(passing))
                if passing.wait_s > PATIENCE_S:
                    raise Unavailable(
                        f"{reason}; it asks to wait {passing.wait_s:.0f} s", hint="--resume continues then"
                    ) from None
                if attempt < self.asking.retries:
                    wait = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**attempt) * random.uniform(0.5, 1)  # noqa: S311
                    time.sleep(max(wait, passing.wait_s))
            else:
                self._answered = True
                return Said(**{**vars(cleaned(said, self._secret)), "attempts": attempt + 1})
        raise EngineError(f"no answer in {self.asking.retries + 1} attempts; the last: {reason}")

    def _send(self, asked: dict[str, Any], max_new_tokens: int, note: Callable[[str], None]) -> Said:
        """One request, and again without what the endpoint does not take.

        Raises:
            EngineError: it is not taken.
            Passing, Unavailable: as for `request`.
        """
        with self._lock:
            parameters = dict(self._parameters)
        while True:
            limit = {k: max_new_tokens if v is None else v for k, v in parameters.items()}
            try:
                said = request(self._client, self._url, asked | limit, self.asking.timeout_s, self._secret, note)
            except Rejected as rejected:
                fewer = _without(parameters, rejected.parameter, str(rejected))
                if fewer is None:
                    hint = (
                        "try --max-side, or --image jpeg:90"
                        if str(rejected).startswith("the server says 413")
                        else None
                    )
                    raise EngineError(self._secret.clean(str(rejected)), hint=hint) from None
                parameters = fewer
            except Unavailable as error:
                raise Unavailable(self._secret.clean(error.what), hint=error.hint) from None
            except Passing as passing:
                if passing.unreached and not self._answered:
                    raise Unavailable(self._secret.clean(str(passing)), hint="check --base-url") from None
                raise
            else:
                with self._lock:
                    self._parameters = parameters
                return said

    def _messages(
        self, messages: Sequence[dict[str, Any]], pictures: Sequence[NDArray[np.uint8]]
    ) -> list[dict[str, Any]]:
        """With the pictures in their places, as data URLs."""
        waiting = iter(pictures)

        def part(given: dict[str, Any]) -> dict[str, Any]:
            if given["type"] != "image":
                return given
            kind, data = encode(next(waiting), self.endpoint.image, self.endpoint.max_side)
            url = f"data:{kind};base64,{base64.b64encode(data).decode()}"
            return {"type": "image_url", "image_url": {"url": url}}

        return [{"role": m["role"], "content": [part(p) for p in m["content"]]} for m in messages]

    def _read_key(self, url: Any) -> Secret:
        key = os.environ.get(self.asking.key_variable, "").strip()
        if not key:
            return Secret("")
        where = f"${self.asking.key_variable}"
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise UsageError("is no key: it holds spaces, or characters that no header can carry", where=where)
        if url.scheme != "https" and not is_loopback(url.host):
            raise UsageError(
                f"the key is not sent to {url.host} over http, where others could read it",
                where=where,
                hint="use https, or unset it where no key is needed",
            )
        return Secret(key)


def _without(parameters: dict[str, Any], named: str, reason: str) -> dict[str, Any] | None:
    """The parameters without the one that the endpoint does not take, or in its other form; None where it is none."""
    named = named or next((p for p in parameters if re.search(rf"\b{p}\b", reason)), "")
    fewer = dict(parameters)
    if named not in fewer:
        return None
    value = fewer.pop(named)
    if named == "max_tokens":
        fewer["max_completion_tokens"] = value
    elif named == "max_completion_tokens":
        return None
    elif named == "top_logprobs" and value == LIKELIEST[0]:
        fewer["top_logprobs"] = LIKELIEST[1]
    elif named in {"logprobs", "top_logprobs"}:
        fewer.pop("logprobs", None)
        fewer.pop("top_logprobs", None)
    elif named == "stream":
        fewer.pop("stream_options", None)
    return fewer
