"""Certificates for the tests: an authority, one below it, and what that one signs for servers and clients."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_SETTINGS = """
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
[server]
basicConstraints = CA:FALSE
extendedKeyUsage = serverAuth
subjectAltName = {names}
[client]
basicConstraints = CA:FALSE
extendedKeyUsage = clientAuth
"""

_LATER = "20991231235959Z"
EXPIRED = "20200201000000Z"


@dataclass(frozen=True)
class Certificate:
    """A certificate with the ones between it and its root, and its key."""

    chain: Path
    key: Path


class Authority:
    """A root and an intermediate authority. `root` is what a client trusts."""

    def __init__(self, directory: Path, name: str = "root") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("unavailable: openssl")
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self.root = directory / "root.pem"
        self._run("req", "-x509", *_key("root"), "-subj", f"/CN=Tailrace test {name}", "-days", "3650",
                  "-config", self._settings(""), "-extensions", "authority", "-out", "root.pem")  # fmt: skip
        self._request("between", "Tailrace test intermediate")
        self._sign("between", "root", "authority")

    def server(self, names: str = "DNS:db.tailrace.test", *, end: str = _LATER) -> Certificate:
        """A server's, for these alternative names, that ends at `end`."""
        self._request("server", "tailrace server")
        self._sign("server", "between", "server", end, names)
        return self._chained("server")

    def client(self, role: str) -> Certificate:
        """A client's, for this role."""
        self._request("client", role)
        self._sign("client", "between", "client")
        return self._chained("client")

    def _chained(self, name: str) -> Certificate:
        parts = [(self._directory / f"{part}.pem").read_text() for part in (name, "between")]
        chain = self._directory / f"{name}.chain.pem"
        chain.write_text("".join(parts))
        key = self._directory / f"{name}.key"
        key.chmod(0o600)
        return Certificate(chain, key)

    def _request(self, name: str, subject: str) -> None:
        self._run("req", *_key(name), "-subj", f"/CN={subject}", "-config", self._settings(""),
                  "-out", f"{name}.csr")  # fmt: skip

    def _sign(self, name: str, by: str, section: str, end: str = _LATER, names: str = "") -> None:
        """By `openssl ca`: only that can make a certificate which has ended."""
        work = self._directory / f"{by}.ca"
        work.mkdir(exist_ok=True)
        (work / "index.txt").touch()
        settings = self._directory / "ca.cnf"
        settings.write_text(
            _SETTINGS.format(names=names or "DNS:none")
            + f"[ca]\ndefault_ca = own\n[own]\ndatabase = {work}/index.txt\nnew_certs_dir = {work}\n"
            "rand_serial = yes\ndefault_md = sha256\npolicy = any\nunique_subject = no\n"
            "[any]\ncommonName = supplied\n"
        )
        self._run("ca", "-batch", "-notext", "-config", str(settings), "-cert", f"{by}.pem",
                  "-keyfile", f"{by}.key", "-in", f"{name}.csr", "-out", f"{name}.pem",
                  "-extensions", section, "-startdate", "20200101000000Z", "-enddate", end)  # fmt: skip

    def _settings(self, names: str) -> str:
        path = self._directory / "openssl.cnf"
        path.write_text(_SETTINGS.format(names=names or "DNS:none"))
        return str(path)

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(
            ["openssl", *arguments], cwd=self._directory, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def _key(name: str) -> list[str]:
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key"]
