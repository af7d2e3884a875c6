"""A server on this machine that answers as a MediaWiki's api.php does, as well and as badly as asked."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

TOWER = "The Eiffel Tower is a lattice tower in Paris. It was finished in 1889. Three. Four. Five. Six."
PAGES: dict[str, dict[str, Any]] = {
    "eiffel tower": {"title": "Eiffel Tower", "extract": TOWER},
    "mercury": {"title": "Mercury", "extract": "Mercury may refer to:", "pageprops": {"disambiguation": ""}},
    "two words": {"title": "Two words", "extract": "too short\n\nNow there are more words here."},
}
FOUND_BY_SEARCH = {
    "mercury": [
        {"title": "Mercury", "index": 1, "extract": "Mercury may refer to:", "pageprops": {"disambiguation": ""}},
        {"title": "Mars", "index": 3, "extract": "Mars is the fourth planet."},
        {"title": "Mercury (planet)", "index": 2, "extract": "Mercury is the first planet."},
    ]
}


class MediaWiki:
    """What was asked, and what comes next: `failures` are answered first, one a request."""

    def __init__(self, address: str) -> None:
        self.api = f"{address}/w/api.php"
        self.asked: list[dict[str, str]] = []
        self.agents: set[str] = set()
        self.failures: list[str] = []


@contextlib.contextmanager
def serve() -> Iterator[MediaWiki]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.wiki = MediaWiki(f"http://127.0.0.1:{server.server_port}")  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.wiki  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        wiki: MediaWiki = self.server.wiki  # type: ignore[attr-defined]
        asked = {k: v[0] for k, v in parse_qs(urlparse(self.path).query).items()}
        wiki.asked.append(asked)
        wiki.agents.add(self.headers["User-Agent"])
        failure = wiki.failures.pop(0) if wiki.failures else ""
        if failure == "cut":
            self.connection.close()
            return
        status = int(failure) if failure.isdigit() else 200
        if failure == "maxlag":
            body = json.dumps({"error": {"code": "maxlag", "info": "busy"}}).encode()
        elif failure == "html":
            body = b"<html>maintenance</html>"
        elif failure == "list":
            body = b"[1, 2]"
        elif failure == "huge":
            body = b" " * (5 << 20)
        else:
            body = json.dumps(self._answer(asked)).encode()
        self.send_response(status)
        if failure in {"429", "maxlag"}:
            self.send_header("Retry-After", "7")
        if failure == "302":
            self.send_header("Location", "http://127.0.0.1:9/elsewhere")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)

    def _answer(self, asked: dict[str, str]) -> dict[str, Any]:
        if "gsrsearch" in asked:
            pages = FOUND_BY_SEARCH.get(asked["gsrsearch"], [])
            return {"batchcomplete": True, "query": {"pages": pages}} if pages else {"batchcomplete": True}
        page = PAGES.get(asked["titles"], {"title": asked["titles"], "missing": True})
        return {"batchcomplete": True, "query": {"pages": [page]}}

    def log_message(self, format: str, *arguments: object) -> None:
        pass
