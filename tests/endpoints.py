"""A chat endpoint on loopback that does as it is told: answers, refuses, breaks off, stalls, sends garbage."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


@dataclass
class Asked:
    """One request as it arrived."""

    body: dict[str, Any]
    headers: dict[str, str]
    at: float

    @property
    def picture(self) -> Image.Image:
        """The only picture of its message."""
        (part,) = [p for p in self.body["messages"][0]["content"] if p["type"] == "image_url"]
        image = Image.open(io.BytesIO(base64.b64decode(part["image_url"]["url"].partition(",")[2])))
        image.load()
        return image

    @property
    def pixels(self) -> bytes:
        return np.asarray(self.picture).tobytes()


Reply = tuple[int, dict[str, str], bytes]
"""State, headers and body."""
Manner = Callable[["Handler", Asked], None]


@dataclass
class Endpoint:
    """What the server was asked, and how it answers."""

    manner: Manner = lambda handler, asked: handler.stream("A")
    asked: list[Asked] = field(default_factory=list)
    under_way: int = 0
    most_at_once: int = 0
    lock: Any = field(default_factory=threading.Lock)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    endpoint: Endpoint

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked = Asked(body, {k.lower(): v for k, v in self.headers.items()}, time.monotonic())
        endpoint = self.endpoint
        with endpoint.lock:
            endpoint.asked.append(asked)
            endpoint.under_way += 1
            endpoint.most_at_once = max(endpoint.most_at_once, endpoint.under_way)
        try:
            with contextlib.suppress(OSError):
                endpoint.manner(self, asked)
        finally:
            with endpoint.lock:
                endpoint.under_way -= 1

    do_GET = do_POST

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def reply(self, state: int, body: bytes | dict[str, Any], **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(state)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        if "Content_Length" in headers:
            self.hang_up()

    def message(self, text: str | None, finish: str = "stop", **more: Any) -> None:
        """One whole reply."""
        message = {"role": "assistant", "content": text, **more}
        self.reply(200, {"choices": [{"index": 0, "message": message, "finish_reason": finish}]})

    def stream(self, text: str, finish: str | None = "stop", *, wait: float = 0.0) -> None:
        """A reply of server-sent events, with the likeliest first tokens and the tokens used."""
        self.events(*pieces(text, finish), wait=wait)

    def events(self, *values: Any, wait: float = 0.0, done: bool = True) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Connection", "close")
        self.end_headers()
        for value in values:
            self.wfile.write(b": ping\r\n\r\ndata: " + json.dumps(value).encode() + b"\n\n")
            time.sleep(wait)
        if done:
            self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def stall(self, seconds: float) -> None:
        """Say nothing for longer than anyone waits; it then counts as under way no more."""
        with self.endpoint.lock:
            self.endpoint.under_way -= 1
        time.sleep(seconds)
        with self.endpoint.lock:
            self.endpoint.under_way += 1

    def hang_up(self) -> None:
        self.close_connection = True


def pieces(text: str, finish: str | None = "stop") -> list[dict[str, Any]]:
    """The events of a reply."""
    likeliest = [{"token": "A", "logprob": -0.3}, {"token": " B", "logprob": -2.0}, {"token": "B", "logprob": -2.5}]
    likeliest += [{"token": c, "logprob": -4.0} for c in ("C", "D", "E")]
    found: list[dict[str, Any]] = [{"choices": [{"delta": {"role": "assistant", "content": None}}], "model": "m-1"}]
    for letter in text:
        logprobs = {"content": [{"token": letter, "logprob": -0.3, "top_logprobs": likeliest}]}
        found.append({"choices": [{"delta": {"content": letter}, "logprobs": logprobs}], "model": "m-1"})
    found.append({"choices": [{"delta": {}, "finish_reason": finish}], "model": "m-1"})
    found.append({"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": len(text) + 1}, "model": "m-1"})
    return found


@contextlib.contextmanager
def serving(endpoint: Endpoint, port: int = 0, certificate: Path | None = None) -> Iterator[str]:
    """Its base URL, while it runs."""
    handler = type("Its", (Handler,), {"endpoint": endpoint})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        scheme = "http" if certificate is None else "https"
        yield f"{scheme}://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
