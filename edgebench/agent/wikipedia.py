"""Wikipedia, or any MediaWiki with the extension TextExtracts, through its public API.

Bounded on every side: each request has a timeout, a failed one is tried again twice, requests keep their distance,
an answer has a largest size, and after three lookups in a row that reached nothing the source is not asked again.
TLS certificates are verified; plain http goes to this machine alone. Redirects are not followed.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

from edgebench import __version__
from edgebench.agent.sentences import article
from edgebench.errors import MissingExtraError, UsageError, one_line
from edgebench.trace import Knowledge

if TYPE_CHECKING:
    from collections.abc import Callable

ENGLISH = "https://en.wikipedia.org/w/api.php"
TIMEOUT_S = 5.0
"""To connect, and between two pieces of an answer."""
LOOKUP_S = 30.0
"""All requests, tries and waits of one lookup."""
TRIES = 3
DISTANCE_S = 0.2
"""Between the beginnings of two requests."""
WAITS_S = (0.5, 2.0)
"""Before the second and third try, where the server says no other."""
UNREACHABLE_IN_A_ROW = 3
LARGEST = 4 << 20
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Wikipedia:
    """Lookups over HTTP."""

    def __init__(
        self,
        api: str = ENGLISH,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare; nothing is asked yet.

        Args:
            api: the address of an api.php.
            clock: seconds, never going back.
            wait: for so many seconds.

        Raises:
            UsageError: the address is neither https nor on this machine.
            MissingExtraError: httpx2 is not installed.
        """
        try:
            import httpx2 as httpx
        except ImportError as error:
            raise MissingExtraError(
                "Wikipedia is asked with httpx2, which is not installed", hint="pip install 'edgebench[knowledge]'"
            ) from error
        self._httpx = httpx
        try:
            url = httpx.URL(api)
        except httpx.InvalidURL as error:
            raise UsageError(f"is no address: {error}", where=api) from error
        if url.userinfo or not (url.scheme == "https" or (url.scheme == "http" and url.host in LOOPBACK)):
            raise UsageError("is not an https address without a password", where=str(url.copy_with(userinfo=b"")))
        self.name = f"wikipedia:{url.host}" if api == ENGLISH else f"mediawiki:{url}"
        self._api, self._clock, self._wait = api, clock, wait
        contact = os.environ.get("EDGEBENCH_CONTACT", "no contact given")
        agent = f"edgebench/{__version__} ({contact.encode('ascii', 'replace').decode()}) httpx2/{httpx.__version__}"
        self._client = httpx.Client(
            timeout=TIMEOUT_S, headers={"User-Agent": agent, "Accept": "application/json"}, follow_redirects=False
        )
        self._last = -DISTANCE_S
        self._failed = 0

    def look_up(self, query: str) -> Knowledge:
        """The article of that title; where there is none, or it lists meanings, the best one that a search finds."""
        if self._failed >= UNREACHABLE_IN_A_ROW:
            reason = f"not asked again after {UNREACHABLE_IN_A_ROW} lookups that reached nothing"
            return Knowledge(query=query, status="unreachable", source=self.name, reason=reason)
        begin = self._clock()
        try:
            found = self._find(query, begin + LOOKUP_S)
        except _UnreachableError as error:
            self._failed += 1
            found = Knowledge(query=query, status="unreachable", source=self.name, reason=str(error))
        else:
            self._failed = 0
        return Knowledge(**{**vars(found), "elapsed_ns": int((self._clock() - begin) * 1e9)})

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _find(self, query: str, deadline: float) -> Knowledge:
        if not any(c in query for c in "|#<>[]{}"):  # what no title can hold
            for page in self._pages({"titles": query, "redirects": "1"}, deadline):
                if found := self._article(query, page):
                    return found
        search = {"generator": "search", "gsrsearch": query, "gsrlimit": "3", "gsrnamespace": "0"}
        for page in self._pages(search, deadline):
            if found := self._article(query, page):
                return found
        return Knowledge(query=query, status="nothing", source=self.name)

    def _article(self, query: str, page: dict[str, Any]) -> Knowledge | None:
        properties = page.get("pageprops")
        meanings = isinstance(properties, dict) and "disambiguation" in properties
        text = page.get("extract")
        if meanings or not isinstance(text, str) or "may refer to" in text[:200] or not (text := article(text)):
            return None
        return Knowledge(query=query, status="found", text=text, title=str(page.get("title")), source=self.name)

    def _pages(self, what: dict[str, str], deadline: float) -> list[dict[str, Any]]:
        fixed = {
            "action": "query",
            "format": "json",
            "formatversion": "2",
            "maxlag": "5",
            "prop": "extracts|pageprops",
            "explaintext": "1",
            "exintro": "1",
            "exlimit": "max",
            "ppprop": "disambiguation",
        }
        value = self._get(fixed | what, deadline)
        result = value.get("query")
        pages = result.get("pages") if isinstance(result, dict) else None
        found = [p for p in pages if isinstance(p, dict)] if isinstance(pages, list) else []
        return sorted(found, key=lambda p: p["index"] if isinstance(p.get("index"), int) else 0)

    def _get(self, parameters: dict[str, str], deadline: float) -> dict[str, Any]:
        """One answer of the API.

        Raises:
            _UnreachableError: none came in three tries, or before the deadline.
        """
        reason = ""
        for attempt in range(TRIES):
            now = self._clock()
            pause = max(self._last + DISTANCE_S - now, 0.0)
            if now + pause >= deadline:
                break
            if pause:
                self._wait(pause)
            self._last = self._clock()
            hold: float | None = None
            try:
                value, reason, hold = self._once(parameters, deadline)
            except self._httpx.HTTPError as error:
                value, reason = None, one_line(error)
            if value is not None:
                return value
            hold = WAITS_S[min(attempt, len(WAITS_S) - 1)] if hold is None else hold
            if attempt + 1 < TRIES and self._clock() + hold < deadline:
                self._wait(hold)
            else:
                break
        raise _UnreachableError(reason or f"no answer in {LOOKUP_S:g} s")

    def _once(self, parameters: dict[str, str], deadline: float) -> tuple[dict[str, Any] | None, str, float | None]:
        """One request: the answer, or why there is none and how long the server asks to wait."""
        with self._client.stream("GET", self._api, params=parameters) as response:
            raw = b""
            for piece in response.iter_bytes():
                raw += piece
                if len(raw) > LARGEST or self._clock() > deadline:
                    return None, "the answer is too large or too slow", None
            after = response.headers.get("Retry-After", "")
            hold = float(after) if after.isdigit() else None
            if response.status_code != 200:
                return None, f"HTTP {response.status_code}", hold
        try:
            value = json.loads(raw)
        except ValueError:
            return None, "the answer is not JSON", None
        if not isinstance(value, dict):
            return None, "the answer is no JSON object", None
        if isinstance(value.get("error"), dict):
            return None, f"API error {str(value['error'].get('code'))[:40]}", hold
        return value, "", None


class _UnreachableError(Exception):
    """No answer came."""
