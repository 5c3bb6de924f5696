"""Checksums, and a signature by OpenSSH: what verifies it is on every machine that operators work on."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from release.build import Build
from release.source import Refused

__all__ = ["SUMS", "check_key", "sign", "sums"]

SUMS = "SHA256SUMS"
NAMESPACE = "vigia-release"
"""What the signature is for: one for another purpose does not verify (PROTOCOL.sshsig)."""


def check_key(key: Path) -> None:
    """Raise Refused unless a file is a key that signs without a question: before the work, not after it."""
    if not key.is_file():
        raise Refused(
            f"cannot sign: KEY={key} is no file; give a private key of OpenSSH: ssh-keygen -t ed25519 -f FILE"
        )
    _sign(key, b"")


def sums(build: Build) -> Path:
    """Write the checksums of all files, as sha256sum reads them."""
    files = sorted(p for p in build.out.iterdir() if p.name not in (SUMS, f"{SUMS}.sig"))
    lines = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in files]
    build.path(SUMS).write_text("".join(lines))
    return build.path(SUMS)


def sign(build: Build, key: Path) -> None:
    """Sign the checksums."""
    build.path(f"{SUMS}.sig").write_bytes(_sign(key, build.path(SUMS).read_bytes()))


def _sign(key: Path, content: bytes) -> bytes:
    done = subprocess.run(
        ["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", NAMESPACE],
        input=content,
        capture_output=True,
        check=False,
        start_new_session=True,  # it asks nobody for a passphrase
    )
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise Refused(
            f"cannot sign with KEY={key}: {said[-1] if said else 'ssh-keygen failed'}; give a private key of "
            "OpenSSH without a passphrase, or a public one whose private half ssh-agent has"
        )
    return done.stdout
