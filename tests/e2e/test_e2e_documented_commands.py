"""The console blocks of pages, run as a reader runs them, one command after the other."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from fakes.documentation import ROOT, Block, blocks
from fakes.reader import Reader, can_isolate, matches, reading

PROGRAMS = ("curl", "ip", "kubectl", "openssl")


@pytest.fixture
def reader() -> Iterator[Reader]:
    if not can_isolate() or not all(map(shutil.which, PROGRAMS)):
        pytest.skip(f"needs root, unshare, {', '.join(PROGRAMS)}")
    with reading() as one:
        yield one


def block(page: str, start: str) -> Block:
    """Return the `console` block of a page that starts with a command."""
    (only,) = [item for item in blocks(page, "console") if item.commands[0].startswith(start)]
    return only


def follow(reader: Reader, part: Block) -> dict[str, str]:
    """Run the commands of a block. Return their outputs."""
    assert len(part.session) > 1
    return {command: reader.run(command, output) for command, output in part.session}


long = [pytest.mark.process, pytest.mark.long, pytest.mark.timeout(600)]


class TestPages:
    pytestmark = long

    def test_quick_start(self, reader: Reader) -> None:
        page = "docs/getting-started/quick-start.md"
        # "In another terminal".
        reader.run(f"{block(page, '.venv/bin/gatehouse up').commands[0]} &")
        outputs = follow(reader, block(page, "export KUBECONFIG"))
        assert "Directory listing" in outputs[next(c for c in outputs if c.startswith("curl"))]
        for command in ("status", "explain http://web.example:8080/", "config default/web"):
            assert reader.run(f".venv/bin/gatehouse {command}")

    def test_security_policies(self, reader: Reader) -> None:
        quick_start = "docs/getting-started/quick-start.md"
        reader.run(f"{block(quick_start, '.venv/bin/gatehouse up').commands[0]} &")
        follow(reader, block(quick_start, "export KUBECONFIG"))
        outputs = follow(reader, block("docs/tasks/security-policies.md", "export KUBECONFIG"))
        assert any(" -u alice:" in command for command in outputs)

    def test_hosted_apiservers(self, reader: Reader) -> None:
        outputs = follow(reader, block("docs/tasks/hosted-apiservers.md", "openssl req"))
        output = outputs[next(c for c in outputs if c.startswith("openssl s_client"))]
        assert "subject=CN = api.one.example" in output.replace("CN=api", "CN = api")

    def test_external_load_balancers(self, reader: Reader) -> None:
        outputs = follow(reader, block("docs/tasks/external-load-balancers.md", "PYTHONPATH"))
        assert "edge" in outputs[".venv/bin/gatehouse status load-balancers"]

    def test_external_machines(self, reader: Reader) -> None:
        page = "docs/tasks/external-load-balancers.md"
        outputs = follow(reader, block(page, ".venv/bin/gatehouse up --machine-address"))
        assert "Directory listing" in outputs["curl -s http://127.0.0.1:8088/"]
        assert "lb-1" in outputs[".venv/bin/gatehouse status load-balancers"]

    def test_kube_apiservers(self, reader: Reader) -> None:
        """The API server of `gatehouse up` is the server whose address a reader inserts."""
        reader.run(".venv/bin/gatehouse up &")
        reader.run("export KUBECONFIG=~/.local/state/gatehouse/kubeconfig")
        reader.run("kubectl create serviceaccount gateway")
        reader.run("token=$(kubectl create token gateway)")
        authority = (
            "kubectl config view --flatten --raw -o jsonpath='{..certificate-authority-data}'"
        )
        reader.run(f"{authority} | base64 -d | sed 's/^/    /' >ca.crt && test -s ca.crt")
        insert = (
            "rm -f examples; mkdir -p examples; sed"
            ' -e "s/put-the-token-here/$token/"'
            " -e '/put the certificate/{r ca.crt' -e 'd}'"
            " -e 's/10.0.0.[12]:6443/127.0.0.1:16443/' -e '/127.0.0.1:16443$/d'"
            f" {ROOT}/examples/kube-apiservers.yaml"
            " >examples/kube-apiservers.yaml"
        )
        reader.run(insert)
        outputs = follow(reader, block("docs/tasks/kube-apiservers.md", "openssl req"))
        explained = outputs[next(c for c in outputs if c.startswith("gatehouse explain"))]
        assert "heavy-lists" in explained


@pytest.mark.parametrize(
    ("text", "documented", "expected"),
    [
        ("NAME  AGE\none   17m\n", "NAME   AGE\none    4s\n", True),
        ("NAME  AGE\none   17m\n", "two    4s\n", False),
        ('[{"id":0,"weight":1,"max":5}]\n', '[{"id":0,"weight":1,…}]\n', True),
        ("anything\n", "", True),
    ],
)
def test_documented_output_is_compared(text: str, documented: str, expected: bool) -> None:
    assert matches(text, documented) is expected
