"""The client, against a server on this machine: faults, waits, limits, keys, and many requests at
once."""

import asyncio
import json
import resource
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from whet.endpoints import client as client_module
from whet.endpoints.client import (
    Client,
    EndpointConfig,
    PerMinute,
    Reply,
    check_reachable,
    make_body,
    read_key,
    read_reply,
    run_blocking,
)
from whet.endpoints.http import HttpError
from whet.endpoints.stream import allow_open_files, stream_replies
from whet.errors import ConfigError
from whet.testing.server import Asked, CannedReply, FakeServer, chat_reply, serve_replies
from whet.types import FinishReason, Json, Message

MESSAGES = (Message(role="system", content="Be brief."), Message(role="user", content="2 + 2"))


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


class FakeTime:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def endpoint(url: str, **settings: Json) -> EndpointConfig:
    return EndpointConfig.model_validate({"url": url, "model": "big", "timeout": 5.0, **settings})


def ask(cfg: EndpointConfig, fake: FakeTime | None = None, **limits: float) -> tuple[Reply, Client]:
    fake = fake or FakeTime()
    client = Client(cfg, clock=fake.clock, sleep=fake.sleep)

    async def work() -> Reply:
        async with client:
            body = make_body(cfg, MESSAGES, max_tokens=5, temperature=0.5)
            return await client.ask(body, **limits)

    return run_blocking(work()), client


def first(fault: CannedReply) -> Callable[[Asked], CannedReply]:
    """Answer the first request with a fault, and the others well."""
    return lambda asked: fault if asked.number == 1 else chat_reply("4")


def test_a_chat_is_asked_and_its_tokens_are_counted() -> None:
    with serve_replies(lambda asked: chat_reply("4")) as server:
        reply, client = ask(endpoint(server.url))

    assert (reply.text, reply.finish) == ("4", FinishReason.STOP)
    assert (client.usage.prompt_tokens, client.usage.tokens, client.usage.requests) == (3, 7, 1)
    assert server.asked[0].target == "/v1/chat/completions"
    assert server.asked[0].body == {
        "model": "big",
        "max_tokens": 5,
        "temperature": 0.5,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "2 + 2"},
        ],
    }


def test_a_completion_continues_the_text_of_the_messages() -> None:
    body = b'{"choices": [{"text": " = 4", "finish_reason": "length"}]}'
    with serve_replies(lambda asked: CannedReply(body=body)) as server:
        reply, _ = ask(endpoint(server.url, api="completions"))

    assert (reply.text, reply.finish, reply.tokens) == (" = 4", FinishReason.LENGTH, 0)
    assert server.asked[0].target == "/v1/completions"
    assert server.asked[0].body["prompt"] == "Be brief.\n\n2 + 2"


@pytest.mark.parametrize(
    "fault",
    [
        CannedReply(status=429, headers={"Retry-After": "0"}),
        CannedReply(status=500, body=b"\xff"),
        CannedReply(closes=True),
        CannedReply(body=b"[" * 100_000),
        CannedReply(body=b'{"choices": [{"message": {"content": 4}}]}'),
        CannedReply(body=b"not json"),
    ],
    ids=["429", "500", "closed", "deep", "number", "garbage"],
)
def test_a_fault_that_may_pass_is_tried_again(fault: CannedReply) -> None:
    with serve_replies(first(fault)) as server:
        reply, client = ask(endpoint(server.url))

    assert reply.text == "4"
    assert client.usage.retries == 1


def test_a_reply_that_stalls_is_given_up_and_asked_for_again() -> None:
    with serve_replies(first(CannedReply(body=b"x" * 100, stalls=True))) as server:
        reply, client = ask(endpoint(server.url, timeout=0.2))

    assert reply.text == "4"
    assert client.usage.retries == 1


def test_an_endless_reply_is_not_read_to_its_end() -> None:
    with serve_replies(lambda asked: CannedReply(body=b" " * (1 << 20))) as server:
        cfg = endpoint(server.url, tries=1)
        client = Client(cfg, max_bytes=1000)
        reply = run_blocking(client.ask({"model": "big"}))

    assert reply.text is None and reply.fault.endswith("the reply has more than 1,000 bytes")


def test_waits_grow_and_are_random_and_the_tries_are_counted() -> None:
    fake = FakeTime()
    with serve_replies(
        lambda asked: CannedReply(status=503, body=b'{"error": {"message": "busy"}}')
    ) as server:
        reply, _ = ask(endpoint(server.url, tries=5), fake)

    assert reply.text is None and reply.fault.startswith("the server answers 503")
    assert reply.fault.endswith(": busy")
    assert len(server.asked) == 5
    bounds = [(0.25, 0.5), (0.5, 1.0), (1.0, 2.0), (2.0, 4.0)]
    assert [low <= s <= high for s, (low, high) in zip(fake.slept, bounds, strict=True)] == [
        True
    ] * 4


def test_the_server_says_how_long_to_wait_and_all_requests_wait() -> None:
    fake = FakeTime()
    with serve_replies(first(CannedReply(status=429, headers={"Retry-After": "30"}))) as server:
        cfg = endpoint(server.url)
        client = Client(cfg, clock=fake.clock, sleep=fake.sleep)

        async def work() -> None:
            async with client:
                await client.ask({"model": "big"})
                client._paused_until = fake.now + 9
                await client.ask({"model": "big"})

        run_blocking(work())

    assert 30 <= fake.slept[0] <= 30.25
    assert fake.slept[1:] == [9.0]


def test_a_wait_beyond_the_deadline_is_not_waited_for() -> None:
    fake = FakeTime()
    with serve_replies(first(CannedReply(status=429, headers={"Retry-After": "30"}))) as server:
        reply, _ = ask(endpoint(server.url), fake, deadline=1010.0)

    assert reply.status == 429
    assert fake.slept == []


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_a_lasting_fault_is_not_tried_again(status: int) -> None:
    with serve_replies(lambda asked: CannedReply(status=status)) as server:
        reply, _ = ask(endpoint(server.url))

    assert (reply.status, reply.may_pass, len(server.asked)) == (status, False, 1)


def test_a_minute_has_no_more_requests_than_its_limit() -> None:
    fake = FakeTime()
    with serve_replies(lambda asked: chat_reply("4")) as server:
        cfg = endpoint(server.url, requests_per_minute=6)
        client = Client(cfg, clock=fake.clock, sleep=fake.sleep)

        async def work() -> None:
            async with client:
                for _ in range(4):
                    await client.ask({"model": "big"})

        run_blocking(work())

    assert fake.slept == [10.0, 10.0, 10.0]


def test_tokens_are_reserved_by_an_estimate_and_corrected_by_what_was_used() -> None:
    limit = PerMinute(600)
    assert limit.reserve(100, now=0.0) == 0.0
    limit.correct(-40)  # 60 were used: 6 seconds' worth

    assert limit.reserve(1, now=0.0) == pytest.approx(6.0)
    assert PerMinute(None).reserve(10**9, now=0.0) == 0.0


def test_the_key_comes_from_the_environment_and_goes_to_no_other_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("A_TEST_KEY", "not-a-secret")
    with serve_replies(lambda asked: chat_reply("4")) as other:
        moved = CannedReply(status=302, headers={"Location": f"{other.url}/chat/completions"})
        with serve_replies(lambda asked: moved) as server:
            reply, _ = ask(endpoint(server.url, key_env="A_TEST_KEY"))

    assert server.asked[0].key == "Bearer not-a-secret"
    assert other.asked == [] and reply.status == 302 and "secret" not in reply.fault


@pytest.mark.parametrize("value", ["", "two\r\nlines"])
def test_a_key_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("A_TEST_KEY", value)
    with pytest.raises(ConfigError, match="the environment variable A_TEST_KEY"):
        read_key("A_TEST_KEY")


@pytest.mark.parametrize("url", ["http://[half/v1", "http://:80/v1", "http://x:99999/v1"])
def test_an_address_that_is_none_is_a_lasting_fault(url: str) -> None:
    reply, _ = ask(endpoint(url))
    assert reply.text is None and not reply.may_pass


def test_a_proxy_of_the_environment_is_asked_in_place_of_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serve_replies(lambda asked: chat_reply("by proxy")) as proxy:
        monkeypatch.setenv("no_proxy", "")
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1"))
        reply, _ = ask(endpoint("http://far.example:81/v1"))

    assert reply.text == "by proxy"
    assert proxy.asked[0].target == "http://far.example:81/v1/chat/completions"


def test_a_thought_that_the_server_set_apart_is_part_of_the_answer() -> None:
    message: Json = {"content": "4", "reasoning_content": "2 and 2"}
    body = json.dumps({"choices": [{"message": message}]}).encode()
    assert read_reply(body).text == "<think>\n2 and 2\n</think>\n\n4"


def test_half_a_surrogate_pair_becomes_a_question_mark() -> None:
    assert read_reply(b'{"choices": [{"text": "a\\ud800"}]}').text == "a?"


def test_plain_code_may_ask_where_a_loop_runs_as_in_a_notebook() -> None:
    async def notebook() -> int:
        async def one() -> int:
            return 1

        return run_blocking(one())

    assert asyncio.run(notebook()) == 1


def numbered(count: int) -> Iterator[tuple[int, dict[str, Json]]]:
    for number in range(count):
        yield number, {"messages": [{"role": "user", "content": str(number)}]}


def stream(server: FakeServer, count: int, in_flight: int) -> dict[int, str | None]:
    cfg = endpoint(server.url, in_flight=in_flight)
    replies = stream_replies(Client(cfg), numbered(count), lambda key, reply: None)
    return {key: reply.text for key, reply in replies}


def test_requests_are_in_flight_together_and_connections_are_kept() -> None:
    with serve_replies(lambda asked: chat_reply(asked.prompt, seconds=0.01)) as server:
        texts = stream(server, 300, 50)
        num_connections = server.num_connections

    assert texts == {number: str(number) for number in range(300)}
    assert 25 <= server.most_in_flight <= 50
    assert num_connections <= 50


def test_a_process_may_hold_as_many_connections_as_the_system_lets_it() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
    try:
        allow_open_files(100)
        raised, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        with pytest.raises(ConfigError, match=f"this process may have {hard:,}: set it to"):
            allow_open_files(hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert raised == 356


def test_what_storing_raises_ends_the_stream() -> None:
    def refuse(key: int, reply: Reply) -> None:
        raise ConfigError("the disk is full")

    with serve_replies(lambda asked: chat_reply("")) as server:
        replies = stream_replies(Client(endpoint(server.url)), numbered(9), refuse)
        with pytest.raises(ConfigError, match="the disk is full"):
            list(replies)


def test_closing_a_stream_drops_what_is_in_flight() -> None:
    def answer(asked: Asked) -> CannedReply:
        return chat_reply("", seconds=0.0 if asked.number == 1 else 60.0)

    with serve_replies(answer) as server:
        cfg = endpoint(server.url, in_flight=4, timeout=60.0)
        replies = stream_replies(Client(cfg), numbered(9), lambda key, reply: None)
        next(replies)
        began = time.monotonic()
        replies.close()

    assert time.monotonic() - began < 5


def test_replies_that_nobody_reads_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whet.endpoints.stream.MAX_UNREAD", 5)
    stored: list[int] = []
    is_full, is_too_full = threading.Event(), threading.Event()

    def store(key: int, reply: Reply) -> None:
        stored.append(key)
        if len(stored) == 7:
            is_full.set()
        if len(stored) == 9:
            is_too_full.set()

    with serve_replies(lambda asked: chat_reply("")) as server:
        cfg = endpoint(server.url, in_flight=2)
        replies = stream_replies(Client(cfg), numbered(40), store)
        next(replies)
        assert is_full.wait(10) and not is_too_full.wait(0.1)
        assert len(list(replies)) == 39


def test_a_server_that_is_not_there_is_noticed() -> None:
    with serve_replies(lambda asked: CannedReply(status=404)) as server:
        check_reachable(Client(endpoint(server.url)))
        url = server.url
    with pytest.raises(HttpError, match="Connection refused"):
        check_reachable(Client(endpoint(url)))


def test_the_longest_wait_that_a_server_may_ask_for_is_bounded() -> None:
    client = Client(endpoint("http://x/v1"), clock=lambda: 0.0)
    pause = client._choose_pause(0, Reply(wait=1e9))
    assert pause <= client_module.LONGEST_ASKED_WAIT + client_module.FIRST_WAIT
