"""ClusterTrustBundles are validated with the messages of a kube-apiserver 1.37.2."""

from __future__ import annotations

import datetime
import io
import json
from functools import cache
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from fakes.inprocess import Server

JSON = {"Content-Type": "application/json"}
PATH = "/apis/certificates.k8s.io/v1/clustertrustbundles"
SIGNER = "example.com/s"
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@cache
def certificate(name: str, *, ca: bool | None = True) -> str:
    """Return a certificate as PEM; ``ca`` None: it does not say whether it is an authority's."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), 1, START, START)
    if ca is not None:
        builder = builder.add_extension(x509.BasicConstraints(ca, None), critical=True)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def with_header(pem: str) -> str:
    first, rest = pem.split("\n", 1)
    return f"{first}\nProc-Type: 4,ENCRYPTED\n\n{rest}"


ONE, TWO, LEAF = certificate("one"), certificate("two"), certificate("leaf", ca=False)
UNKNOWN = certificate("unknown", ca=None)
KEY = ONE.replace("CERTIFICATE", "PRIVATE KEY")
EMPTY = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"
NO_ANCHOR = "at least one trust anchor must be provided"
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex "
    "used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
ACCEPTED = {
    "one certificate": ("a", {"trustBundle": ONE}),
    "text around certificates": ("a", {"trustBundle": f"one\n{ONE}two\n{TWO}end"}),
    "an unfinished block": ("a", {"trustBundle": f"{ONE}-----BEGIN CERTIFICATE-----\nMII\n"}),
    "lines with carriage returns": ("a", {"trustBundle": ONE.replace("\n", "\r\n")}),
    "a signer": ("example.com:s:v1", {"signerName": SIGNER, "trustBundle": ONE}),
}
REJECTED: dict[str, tuple[str, dict[str, Any], list[tuple[str, str]]]] = {
    "no text": ("a", {"trustBundle": ""}, [("spec.trustBundle", NO_ANCHOR)]),
    "no block": ("a", {"trustBundle": "text"}, [("spec.trustBundle", NO_ANCHOR)]),
    "a key": (
        "a",
        {"trustBundle": ONE + KEY},
        [("spec.trustBundle", "entry 1 has bad block type: PRIVATE KEY")],
    ),
    "a header": (
        "a",
        {"trustBundle": with_header(ONE)},
        [("spec.trustBundle", "entry 0 has PEM block headers")],
    ),
    "an empty block": (
        "a",
        {"trustBundle": EMPTY},
        [("spec.trustBundle", "entry 0 does not parse as X.509")],
    ),
    "certificates of servers": (
        "a",
        {"trustBundle": LEAF + UNKNOWN},
        [
            ("spec.trustBundle", "entry 0 does not have the CA bit set"),
            ("spec.trustBundle", "entry 1 does not have the CA bit set"),
        ],
    ),
    "a certificate twice": (
        "a",
        {"trustBundle": ONE + TWO + ONE},
        [("spec.trustBundle", "duplicate trust anchor (indices [0 2])")],
    ),
    "a name of a signer without signer": (
        "example.com:s:v1",
        {"trustBundle": ONE},
        [("metadata.name", 'ClusterTrustBundle without signer name must not have ":" in its name')],
    ),
    "a name of another signer": (
        "example.com:t:v1",
        {"signerName": SIGNER, "trustBundle": ONE},
        [
            (
                "metadata.name",
                "ClusterTrustBundle for signerName example.com/s must be named with prefix "
                "example.com:s:",
            )
        ],
    ),
    "a name that ends with the prefix": (
        "example.com:s:",
        {"signerName": SIGNER, "trustBundle": ONE},
        [("metadata.name", SUBDOMAIN)],
    ),
    "a signer without path": (
        "example.com:v1",
        {"signerName": "example.com", "trustBundle": ONE},
        [
            (
                "spec.signerName",
                "must be a fully qualified domain and path of the form 'example.com/signer-name'",
            )
        ],
    ),
    "a signer without domain": (
        "example:s:v1",
        {"signerName": "example/s", "trustBundle": ONE},
        [("spec.signerName", "should be a domain with at least two segments separated by dots")],
    ),
    "a signer with capital letters": (
        "Example.com:S:v1",
        {"signerName": "Example.com/S", "trustBundle": ONE},
        [
            ("spec.signerName", f'validating label "Example": {LABEL}'),
            ("spec.signerName", f'validating label "S": {SUBDOMAIN}'),
        ],
    ),
}


async def created(http: aiohttp.ClientSession, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return the response to a create."""
    body = io.BytesIO(json.dumps({"metadata": {"name": name}, "spec": spec}).encode())
    async with http.post(PATH, data=body, headers=JSON) as response:
        return {"status": response.status, **await response.json()}


def causes(answer: dict[str, Any]) -> list[tuple[str, str]]:
    """Return fields and reasons of a rejection, without the values."""
    return [
        (cause["field"], cause["message"].partition('": ')[2])
        for cause in answer.get("details", {}).get("causes", ())
    ]


@pytest.mark.parametrize("case", ACCEPTED)
async def test_accepted(server: Server, case: str) -> None:
    async with server.raw() as http:
        answer = await created(http, *ACCEPTED[case])
        assert answer["kind"] == "ClusterTrustBundle", answer
        async with http.get(PATH, params={"fieldSelector": f"spec.signerName={SIGNER}"}) as listed:
            items = (await listed.json())["items"]
        assert len(items) == (case == "a signer")


@pytest.mark.parametrize("case", REJECTED)
async def test_rejected(server: Server, case: str) -> None:
    name, spec, expected = REJECTED[case]
    async with server.raw() as http:
        answer = await created(http, name, spec)
    assert (causes(answer), answer.get("code")) == (expected, 422), answer


async def test_size_is_limited(server: Server) -> None:
    async with server.raw() as http:
        answer = await created(http, "a", {"trustBundle": "x" * (1 << 20) + ONE})
    (cause,) = answer["details"]["causes"]
    assert (cause["field"], cause["message"]) == (
        "spec.trustBundle",
        "Too long: may not be more than 1048576 bytes",
    )


async def test_signer_cannot_change_and_an_unchanged_text_is_not_parsed(server: Server) -> None:
    async with server.raw() as http:
        bundle = await created(http, "example.com:s:v1", {"signerName": SIGNER, "trustBundle": ONE})
        change = {"spec": {"signerName": "example.com/t"}}
        async with http.patch(
            f"{PATH}/example.com:s:v1",
            json=change,
            headers={"Content-Type": "application/merge-patch+json"},
        ) as response:
            assert ("spec.signerName", "field is immutable") in causes(await response.json())
        async with http.put(f"{PATH}/example.com:s:v1", json=bundle) as response:
            assert response.status == 200, await response.text()
