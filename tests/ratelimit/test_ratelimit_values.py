"""Token buckets of requests, and probing of Redis."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from envoy.service.ratelimit.v3 import rls_pb2
from google.protobuf import wrappers_pb2

from fakes.ratelimit_process import descriptor, limit
from gatehouse.ratelimit import descriptors
from gatehouse.ratelimit.descriptors import MAX_TOKENS, MalformedDescriptorError, TakeRequest
from gatehouse.ratelimit.messages import parse_rate_limit_request
from gatehouse.ratelimit.redis_health import PROBES, RedisHealth


def _request(*requested: Any, **fields: Any) -> rls_pb2.RateLimitRequest:
    return rls_pb2.RateLimitRequest(**{"domain": "d", "descriptors": requested} | fields)


def test_descriptor_maps_to_bucket() -> None:
    assert descriptors.take_requests(_request(limit(10, 20), limit(1, 2, "t"))) == [
        TakeRequest("d:c:s", 10, 20),
        TakeRequest("d:c:t", 1, 2),
    ]


def test_each_value_of_a_key_has_a_bucket_of_its_own_and_period() -> None:
    keyed = [
        {"key": "a"}, {"key": "b"}, {"remote_address": "a"}, {"key": "a", "size": "short"},
        {"size": "a"}, {"key": "a:b" * 10_000}, {},
    ]  # fmt: skip
    requested = (limit(10, 20, per="minute", **more) for more in keyed)
    takes = descriptors.take_requests(_request(*requested))
    assert len({take.bucket for take in takes}) == len(keyed)
    assert all(len(take.bucket) <= len("d:c:s:") + 64 for take in takes)
    assert {(take.rate, take.burst, take.seconds) for take in takes} == {(10, 20, 60)}


@pytest.mark.parametrize("value", [b"text", "\u00e9".encode(), b"\xff", b"a\xc3", b"\xed\xa0\x80"])
def test_request_is_read_whatever_bytes_a_client_sends(value: bytes) -> None:
    parsed = parse_rate_limit_request(
        _request(limit(10, 20, key="x" * len(value)), hits_addend=3)
        .SerializeToString()
        .replace(b"x" * len(value), value)
    )
    text = value.decode("utf-8", "backslashreplace")
    assert parsed == _request(limit(10, 20, key=text), hits_addend=3)


def test_descriptor_entries_are_accepted_in_any_order() -> None:
    entries = [("rate", "1"), ("schema", "s"), ("burst", "2"), ("cluster", "c")]
    assert descriptors.take_requests(_request(descriptor(*entries))) == [TakeRequest("d:c:s", 1, 2)]


def test_bucket_names_are_distinct() -> None:
    bucket_names = [
        descriptors.take_requests(_request(limit(1, 1, schema, cluster), domain=domain))[0].bucket
        for domain, cluster, schema in (
            ("d", "a:b", "c"), ("d", "a", "b:c"), ("d:a", "b", "c"), ("d", "a%3Ab", "c"),
            ("d", "a", "b c"), ("d", "a", "b\n"), ("d", "{a}", "b"),
        )
    ]  # fmt: skip
    assert len(set(bucket_names)) == len(bucket_names)
    assert all(not {*name} & {*" \n{}"} for name in bucket_names)


def test_requested_tokens_follow_hits_addend() -> None:
    own = limit(1, 2)
    own.hits_addend.CopyFrom(wrappers_pb2.UInt64Value(value=7))
    none = limit(1, 2)
    none.hits_addend.CopyFrom(wrappers_pb2.UInt64Value(value=0))
    huge = limit(1, 2)
    huge.hits_addend.CopyFrom(wrappers_pb2.UInt64Value(value=2**64 - 1))
    request = _request(limit(1, 2), own, none, huge, hits_addend=3)
    assert [take_request.tokens for take_request in descriptors.take_requests(request)] == [
        3,
        7,
        0,
        MAX_TOKENS + 1,
    ]
    assert descriptors.take_requests(_request(limit(1, 2)))[0].tokens == 1


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        ((), "is 0"),
        ((limit(1, 1),) * 65, "is 65"),
        ((descriptor(),), "are none"),
        ((descriptor(("remote_address", "1.2.3.4")),), "are remote_address"),
        ((limit(1, 1, path="/"),), "are cluster, schema, rate, burst, path"),
        ((descriptor(("cluster", "a"), ("cluster", "b")),), "are cluster, cluster"),
        ((limit(1, 1, schema=""),), "cluster or schema is empty"),
        ((limit(1, 1, cluster=""),), "cluster or schema is empty"),
        ((limit(1, 1, per="hour"),), "per must be one of second, minute"),
        ((limit(0, 1),), "rate must be 1 to 1000000000, is '0'"),
        ((limit(1, 0),), "burst must be 1 to 1000000000, is '0'"),
        ((limit(-1, 1),), "rate must be 1 to 1000000000, is '-1'"),
        ((limit("1.5", 1),), "rate must be 1 to 1000000000, is '1.5'"),
        ((limit("\u0661", 1),), "rate must be"),
        ((limit(1, MAX_TOKENS + 1),), "burst must be 1 to 1000000000, is '1000000001'"),
        ((limit(1, "9" * 5000),), "burst must be"),
        ((limit(1, 1), limit(1, "")), "burst must be 1 to 1000000000, is ''"),
    ],
)
def test_malformed_descriptor_is_rejected(requested: Any, message: str) -> None:
    with pytest.raises(MalformedDescriptorError) as error:
        descriptors.take_requests(_request(*requested))
    assert message in str(error.value)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_probe_interval_grows_while_redis_is_unavailable() -> None:
    clock = Clock()
    outages = RedisHealth(clock)
    assert outages.failed()
    pauses = [outages.pause]
    for _ in range(8):
        clock.now += outages.pause
        assert not outages.failed()
        pauses.append(outages.pause)
    assert pauses[0] == PROBES.first
    assert pauses[-1] == PROBES.maximum
    assert all(later >= earlier for earlier, later in itertools.pairwise(pauses))
    assert outages.answered() == clock.now
    assert outages.answered() is None


def test_pause_grows_with_repeated_redis_outages() -> None:
    clock = Clock()
    outages = RedisHealth(clock)
    pauses = []
    for _ in range(10):
        outages.failed()
        pauses.append(outages.pause)
        clock.now += 1
        outages.answered()
    assert pauses[:3] == [PROBES.first, 2 * PROBES.first, 4 * PROBES.first]
    assert pauses[-1] == PROBES.maximum
    clock.now += PROBES.steady + 1
    outages.failed()
    assert outages.pause == PROBES.first
