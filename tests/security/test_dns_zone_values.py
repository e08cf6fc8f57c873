"""Users who write hostnames and addresses of HostedAPIServers, through `gatehouse dns zone`.

Whatever a name or target is: the zone file stays valid for other software, other records stay the
same, and no record or directive appears that does not follow from an object.
"""

from __future__ import annotations

import dns.name
import dns.rdatatype
import dns.zone
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.hostile_objects import TEXTS
from gatehouse.compiler.frontends.hosted_apiserver import dns as hosted_dns

ORIGIN = "example"
GOOD = hosted_dns.DnsRecord("good.example", "A", ("192.0.2.1",), 60)
ATTACKS = (
    "a\nevil 60 IN A 192.0.2.66", "a 60 IN A 192.0.2.66 ;", "$INCLUDE /etc/passwd", "$ORIGIN com.",
    "a\n$GENERATE 1-9 h$ A 192.0.2.$", "(", ")", "@", "a\\", "a\\.b", "_tcp", "*", "a b", "\t", ";",
    "x" * 63, "x" * 64, ".".join(["x" * 60] * 5), "..", "", "-a", '"', "\x00", "é", "\ud800",
)  # fmt: skip
hostile = st.one_of(st.sampled_from((*ATTACKS, *TEXTS)), st.text(max_size=70))


def parsed(*records: hosted_dns.DnsRecord) -> dict[str, set[tuple[str, str]]]:
    """Return types and data by name, as other software reads the zone."""
    text = hosted_dns.zone_file(ORIGIN, records)
    zone = dns.zone.from_text(text, origin=ORIGIN, relativize=False, check_origin=False)
    return {
        str(name): {
            (dns.rdatatype.to_text(kind.rdtype), str(data)) for kind in node for data in kind
        }
        for name, node in zone.nodes.items()
    }


@given(hostile)
def test_hostile_name_adds_at_most_its_own_record(text: str) -> None:
    result = parsed(GOOD, hosted_dns.DnsRecord(f"{text}.{ORIGIN}", "A", ("192.0.2.9",), 60))
    assert ("A", "192.0.2.1") in result.pop("good.example.")
    assert list(result.values()) in ([], [{("A", "192.0.2.9")}])


@given(hostile)
def test_hostile_target_adds_at_most_its_own_record(text: str) -> None:
    records = hosted_dns.dns_records_for(["alias.example"], [text], 60)
    result = parsed(GOOD, *records)
    assert result.pop("good.example.") == {("A", "192.0.2.1")}
    assert set(result) <= {"alias.example."}
    assert all(len(data) == 1 for data in result.values())


@pytest.mark.parametrize("name", ["_tcp", "*", "x" * 63])
def test_odd_but_valid_names_are_kept(name: str) -> None:
    result = parsed(hosted_dns.DnsRecord(f"{name}.{ORIGIN}", "A", ("192.0.2.9",), 60))
    assert result == {f"{name}.{ORIGIN}.": {("A", "192.0.2.9")}}
