"""Counters over a real Redis, asked as Envoys ask them."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fakes import patience
from fakes.patience import until
from fakes.ratelimit_process import NAME, OK, OVER, Envoy, RateLimitProcess, Redis, limit
from gatehouse.ratelimit.service import RATE_LIMIT_SERVICE
from gatehouse.standalone import pki

pytestmark = pytest.mark.process

SERVING = health_pb2.HealthCheckResponse.SERVING
ERRORS = "gatehouse_ratelimit_redis_errors_total"


def metrics(counter: RateLimitProcess) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{counter.health}/metrics") as response:
        text = response.read().decode()
    return {name: float(value) for name, value in re.findall(r"^([a-z]\S*) (\S+)$", text, re.M)}


async def test_bucket_is_emptied_and_refilled(counter: RateLimitProcess) -> None:
    async with Envoy(counter.address) as envoy:
        answers = [await envoy.ask(limit(1, 3)) for _ in range(4)]
        assert [answer.overall_code for answer in answers] == [OK, OK, OK, OVER]
        (status,) = answers[-1].statuses
        assert (status.code, status.limit_remaining) == (OVER, 0)
        assert status.current_limit.requests_per_unit == 1
        wait = status.duration_until_reset.ToMilliseconds()
        assert 0 < wait <= 1000
        assert answers[0].statuses[0].limit_remaining == 2
        await asyncio.sleep(wait / 1000)
        assert await envoy.passes(limit(1, 3))
        assert not await envoy.passes(limit(1, 3))


async def test_buckets_are_independent(counter: RateLimitProcess) -> None:
    async with Envoy(counter.address) as envoy:
        for request in (limit(1, 1), limit(1, 1, "t"), limit(1, 1, "s", "other")):
            assert await envoy.passes(request)
            assert not await envoy.passes(request)
        response = await envoy.ask(limit(1, 1, "new"), limit(1, 1))
        assert response.overall_code == OVER
        assert [status.code for status in response.statuses] == [OK, OVER]
        assert (await envoy.ask(limit(1, 1), domain="another")).overall_code == OK


async def test_request_for_many_tokens_is_all_or_nothing(counter: RateLimitProcess) -> None:
    async with Envoy(counter.address) as envoy:
        assert await envoy.passes(limit(1, 10), hits=7)
        assert not await envoy.passes(limit(1, 10), hits=4)
        assert await envoy.passes(limit(1, 10), hits=3)
        assert not await envoy.passes(limit(1, 10, "t"), hits=11)
        assert await envoy.passes(limit(1, 10, "t"), hits=10)


async def test_changed_limit_grants_no_new_burst(
    counter: RateLimitProcess,
) -> None:
    async with Envoy(counter.address) as envoy:
        assert await envoy.passes(limit(1, 100), hits=90)
        assert not await envoy.passes(limit(2, 200), hits=20)
        assert not await envoy.passes(limit(1, 5), hits=6)
        assert await envoy.passes(limit(1, 5), hits=5)


async def test_full_bucket_expires_in_redis(counter: RateLimitProcess, redis: Redis) -> None:
    async with Envoy(counter.address) as envoy:
        assert await envoy.passes(limit(10, 5), hits=3)
    left = int(redis.send("PTTL", "gatehouse:d:c:s").strip(":\r\n"))
    assert 0 < left <= 301
    await until(lambda: redis.send("EXISTS", "gatehouse:d:c:s") == ":0\r\n")
    async with Envoy(counter.address) as envoy:
        assert await envoy.passes(limit(10, 5), hits=5)


@pytest.mark.parametrize("held", ["", "junk", "1", "nan 5", "5 5 5", "-9 0", "1e400 1"])
async def test_malformed_bucket_is_replaced_by_full_bucket(
    counter: RateLimitProcess, redis: Redis, held: str
) -> None:
    redis.send("SET", "gatehouse:d:c:s", held)
    async with Envoy(counter.address) as envoy:
        codes = [(await envoy.ask(limit(1, 3))).overall_code for _ in range(4)]
    assert codes == [OK, OK, OK, OVER]


async def test_redis_key_of_another_type_is_replaced(
    counter: RateLimitProcess, redis: Redis
) -> None:
    redis.send("LPUSH", "gatehouse:d:c:s", "x")
    async with Envoy(counter.address) as envoy:
        codes = [(await envoy.ask(limit(1, 2))).overall_code for _ in range(3)]
    assert codes == [OK, OK, OVER]


async def test_backward_clock_neither_refills_nor_blocks_bucket(
    counter: RateLimitProcess, redis: Redis
) -> None:
    later = int((time.time() + 3600) * 1e6)
    redis.send("SET", "gatehouse:d:c:s", f"1 {later}")
    async with Envoy(counter.address) as envoy:
        assert await envoy.passes(limit(5, 5))
        assert not await envoy.passes(limit(5, 5))
        await until(lambda: envoy.passes(limit(5, 5)))


async def test_malformed_descriptor_is_rejected_and_logged_once(counter: RateLimitProcess) -> None:
    async with Envoy(counter.address) as envoy:
        for _ in range(3):
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await envoy.ask(limit("many", 1))
            assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
            assert error.value.details() == "descriptor: rate must be 1 to 1000000000, is 'many'"
    assert counter.log_text.count("malformed request") == 1
    assert metrics(counter)["gatehouse_ratelimit_malformed_requests_total"] == 3


@pytest.mark.long
@pytest.mark.parametrize(("rate", "burst"), [(50, 20), (400, 1), (3, 100)])
async def test_two_services_together_enforce_limit(
    counter: RateLimitProcess, redis: Redis, tmp_path: Path, rate: int, burst: int
) -> None:
    other = RateLimitProcess(redis.url, tmp_path / "other.log")
    other.start()
    try:
        passed, total, begun = [0, 0], 0, time.monotonic()
        async with Envoy(counter.address) as one, Envoy(other.address) as two:

            async def ask(which: int) -> None:
                nonlocal total
                while time.monotonic() - begun < 3:
                    total += 1
                    result = await (one, two)[which].passes(limit(rate, burst))
                    passed[which] += result

            await asyncio.gather(*(ask(number % 2) for number in range(24)))
        seconds = time.monotonic() - begun
        assert sum(passed) <= rate * seconds + burst
        if total > 3 * (rate * seconds + burst):
            # With as many on offer, what there is was given.
            # A bucket of one token wastes time until a client takes the token.
            share = 0.8 if burst > 1 else 0.3
            assert sum(passed) >= share * (rate * 3 + burst) - 1
        assert min(passed) > 0
        values = [metrics(service) for service in (counter, other)]
        name = 'gatehouse_ratelimit_requests_total{result="passed"}'
        assert [samples[name] for samples in values] == passed
    finally:
        other.kill()


async def test_requests_pass_at_once_while_redis_is_unavailable(
    counter: RateLimitProcess, redis: Redis
) -> None:
    async with Envoy(counter.address) as envoy:
        assert await envoy.passes(limit(1, 1))
        assert not await envoy.passes(limit(1, 1))
        redis.kill()
        assert await envoy.passes(limit(1, 1))
        assert all([await envoy.passes(limit(1, 1)) for _ in range(100)])
        samples = metrics(counter)
        assert samples["gatehouse_ratelimit_redis_up"] == 0
        assert samples['gatehouse_ratelimit_requests_total{result="unlimited"}'] == 101
        # The first request, and the probes of the outage: no other request waits for Redis.
        assert 1 <= samples[ERRORS] < 50
        redis.start()
        await until(lambda: metrics(counter)["gatehouse_ratelimit_redis_up"] == 1)
        assert [await envoy.passes(limit(1, 2)) for _ in range(3)] == [True, True, False]
    assert counter.log_text.count("redis unavailable, limits not enforced") == 1
    assert counter.log_text.count("redis available, limits enforced") == 1


async def test_hanging_redis_does_not_block_requests(
    counter: RateLimitProcess, redis: Redis
) -> None:
    async with Envoy(counter.address) as envoy:
        assert await envoy.passes(limit(1, 1))
        redis.hang()
        assert all(await asyncio.gather(*(envoy.passes(limit(1, 1)) for _ in range(50))))
        assert all([await envoy.passes(limit(1, 1)) for _ in range(50)])
        # Each failure takes the Redis timeout: a request that waited for it would be one more.
        assert metrics(counter)[ERRORS] < 50
        redis.go_on()
        await until(lambda: metrics(counter)["gatehouse_ratelimit_redis_up"] == 1)
        await until_limited(envoy)


async def until_limited(envoy: Envoy) -> None:
    async def limited() -> bool:
        return not await envoy.passes(limit(1, 1))

    await until(limited)


async def test_read_only_redis_counts_as_unavailable(
    counter: RateLimitProcess, redis: Redis
) -> None:
    async with Envoy(counter.address) as envoy:
        assert await envoy.passes(limit(1, 1))
        redis.send("REPLICAOF", "127.0.0.1", "1")
        assert all([await envoy.passes(limit(1, 1, "t")) for _ in range(5)])
        assert metrics(counter)["gatehouse_ratelimit_redis_up"] == 0
        redis.send("REPLICAOF", "NO", "ONE")
        await until(lambda: metrics(counter)["gatehouse_ratelimit_redis_up"] == 1)
        await until_limited(envoy)


async def test_script_is_reloaded_after_redis_script_flush(
    counter: RateLimitProcess, redis: Redis
) -> None:
    async with Envoy(counter.address) as envoy:
        assert await envoy.passes(limit(1, 1))
        redis.send("SCRIPT", "FLUSH")
        codes = await asyncio.gather(*(envoy.passes(limit(1, 3, "t")) for _ in range(10)))
        assert sum(codes) == 3
    assert metrics(counter)["gatehouse_ratelimit_redis_up"] == 1


async def test_service_starts_without_redis(redis: Redis, tmp_path: Path) -> None:
    redis.kill()
    counter = RateLimitProcess(redis.url, tmp_path / "early.log")
    counter.start()
    try:
        async with Envoy(counter.address) as envoy:
            assert await envoy.passes(limit(1, 1), hits=5)
            redis.start()
            await until(lambda: metrics(counter)["gatehouse_ratelimit_redis_up"] == 1)
            assert not await envoy.passes(limit(1, 1), hits=5)
    finally:
        counter.kill()


async def test_redis_password_is_used_and_never_logged(tmp_path: Path) -> None:
    redis = Redis(tmp_path, "--requirepass", "s3cret")
    redis.start()
    here = f"127.0.0.1:{redis.port}"
    right = RateLimitProcess(f"redis://:s3cret@{here}/0", tmp_path / "right.log")
    wrong = RateLimitProcess(f"redis://:n0t@{here}/0", tmp_path / "wrong.log")
    try:
        right.start()
        wrong.start()
        async with Envoy(right.address) as envoy:
            assert not await envoy.passes(limit(1, 1), hits=2)
        async with Envoy(wrong.address) as envoy:
            assert await envoy.passes(limit(1, 1), hits=2)
        assert "redis unavailable" in wrong.log_text
        for service in (right, wrong):
            assert here in service.log_text
            assert not re.search("s3cret|n0t", service.log_text)
    finally:
        for process in (right, wrong, redis):
            process.kill()


async def test_probes_and_health_service_report_serving(counter: RateLimitProcess) -> None:
    def probe(path: str) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{counter.health}{path}") as response:
            return int(response.status)

    assert [probe("/livez"), probe("/readyz")] == [200, 200]
    async with Envoy(counter.address) as envoy:
        stub = health_pb2_grpc.HealthStub(envoy.channel)
        for service in ("", RATE_LIMIT_SERVICE):
            request = health_pb2.HealthCheckRequest(service=service)
            assert (await stub.Check(request)).status == SERVING


async def test_shutdown_is_announced_and_pending_requests_are_answered(
    redis: Redis, tmp_path: Path
) -> None:
    counter = RateLimitProcess(redis.url, tmp_path / "ending.log", "--shutdown-delay", "1.5")
    counter.start()
    assert counter.process is not None
    async with Envoy(counter.address) as envoy:
        stub = health_pb2_grpc.HealthStub(envoy.channel)
        assert await envoy.passes(limit(1000, 1000))
        counter.process.terminate()
        request = health_pb2.HealthCheckRequest(service=RATE_LIMIT_SERVICE)

        async def announced() -> bool:
            return bool((await stub.Check(request)).status != SERVING)

        await until(announced)
        # Who has not heard of it is still served.
        assert await envoy.passes(limit(1000, 1000))
        answers = []
        try:
            while True:
                answers.append(await envoy.passes(limit(1000, 1000)))
        except grpc.aio.AioRpcError as error:
            ended = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
            assert error.code() in ended  # noqa: PT017
    assert all(answers)
    assert counter.process.wait(patience.SECONDS) == 0
    assert "stopped" in counter.log_text


async def test_mutual_tls_is_enforced(redis: Redis, tmp_path: Path) -> None:
    store = pki.Pki(tmp_path / "pki")
    store.ensure()
    now, pairs = datetime.now(UTC), {}
    for name, leaf in (
        ("server", pki.InstallationCertificate("server", "server", dns=(NAME,), server=True)),
        ("client", pki.InstallationCertificate("client", "client")),
    ):
        pairs[name] = pki.KeyPair(tmp_path / f"{name}.crt", tmp_path / f"{name}.key")
        pki.issue(store.ca(), leaf, pairs[name], now)
    authority = store.ca().cert
    counter = RateLimitProcess(
        redis.url, tmp_path / "tls.log",
        *("--tls-cert-file", str(pairs["server"].cert)),
        *("--tls-private-key-file", str(pairs["server"].key)),
        *("--client-ca-file", str(authority)),
    )  # fmt: skip
    counter.start()
    try:
        own = pairs["client"].key.read_bytes(), pairs["client"].cert.read_bytes()
        for mine, works in ((own, True), ((None, None), False)):
            credentials = grpc.ssl_channel_credentials(authority.read_bytes(), *mine)
            async with Envoy(counter.address, credentials) as envoy:
                if works:
                    assert await envoy.passes(limit(1, 1))
                else:
                    with pytest.raises(grpc.aio.AioRpcError):
                        await envoy.passes(limit(1, 1))
    finally:
        counter.kill()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "Missing option '--redis'"),
        (("--redis", "http://a"), "--redis http://a: "),
        (("--redis", "redis://:pw@h:port/0"), "--redis redis://h:port/0: "),
        (
            ("--redis", "redis://h", "--tls-cert-file", "a"),
            "--tls-cert-file and --tls-private-key-file must be set together",
        ),
        (
            ("--redis", "redis://h", "--client-ca-file", "a"),
            "--client-ca-file requires --tls-cert-file",
        ),
        (
            ("--redis", "redis://h", "--tls-cert-file", "/none", "--tls-private-key-file", "/none"),
            "No such file or directory: '/none'",
        ),
        (("--redis", "redis://h", "--bind-address", "nowhere"), "cannot listen on nowhere"),
    ],
)
def test_invalid_options_are_rejected(options: tuple[str, ...], message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gatehouse", "ratelimit", *options],
        capture_output=True, text=True, timeout=patience.SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert "pw" not in done.stderr
