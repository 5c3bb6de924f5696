"""Secrets come from files, are checked in constant time, and never show."""

from __future__ import annotations

import hmac
import os
from pathlib import Path

import pytest

from vigia_service.errors import ServiceError
from vigia_service.tokens import Token, read_token


def secret(path: Path, value: str) -> Path:
    """Write a token file as it should be."""
    path.write_text(value + "\n")
    path.chmod(0o600)
    return path


VALUE = "0123456789abcdef-._~+/="


def test_read(tmp_path: Path) -> None:
    token = read_token(secret(tmp_path / "t", VALUE), "auth.x")
    assert token.matches(VALUE)
    assert token.header() == f"Bearer {VALUE}"
    assert token == Token(VALUE)
    assert hash(token) == hash(Token(VALUE))
    assert token != Token(VALUE + "x")
    assert token != VALUE


@pytest.mark.parametrize("wrong", ["", VALUE[:-1], VALUE + "=", VALUE.upper(), "\udcff", "é" * 20])
def test_mismatch(wrong: str) -> None:
    assert not Token(VALUE).matches(wrong)


def test_comparison_is_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []
    compare = hmac.compare_digest

    def spy(a: bytes, b: bytes) -> bool:
        compared.append((len(a), len(b)))
        return compare(a, b)

    monkeypatch.setattr(hmac, "compare_digest", spy)
    Token(VALUE).matches("short")
    Token(VALUE).matches("x" * 10_000)
    assert compared == [(32, 32), (32, 32)], "digests, so that not even the length leaks"


def test_never_shown(tmp_path: Path) -> None:
    token = Token(VALUE)
    assert VALUE not in repr(token) + str(token) + f"{token}" + repr({"t": token})
    bad = tmp_path / "t"
    secret(bad, "short-secret")
    with pytest.raises(ServiceError) as e:
        read_token(bad, "auth.x")
    assert "short-secret" not in str(e.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "does not hold a token"),
        (b"short\n", "does not hold a token"),
        (b"two words of a certain length\n", "does not hold a token"),
        (b"line-one-0123456789\nline-two-0123456789\n", "does not hold a token"),
        (b"\xff" * 32, "does not hold a token"),
        (b"x" * 513, "does not hold a token"),
        (b"x" * 5000, "does not hold a token"),
    ],
)
def test_content_that_is_no_token(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "t"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ServiceError, match=says) as e:
        read_token(path, "auth.api_token_file")
    assert str(e.value).startswith(f"auth.api_token_file: {path}: ")
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o601, 0o644, 0o666])
def test_for_everybody_is_refused_with_the_fix(tmp_path: Path, mode: int) -> None:
    path = secret(tmp_path / "t", VALUE)
    path.chmod(mode)
    with pytest.raises(ServiceError, match=f"run: chmod o= {path}"):
        read_token(path, "auth.x")


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o640, 0o660])
def test_owner_and_group_may_read(tmp_path: Path, mode: int) -> None:
    path = secret(tmp_path / "t", VALUE)
    path.chmod(mode)
    read_token(path, "auth.x")


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="no such file; create one"):
        read_token(tmp_path / "absent", "auth.x")


def test_directory_and_fifo(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="is not a regular file"):
        read_token(tmp_path, "auth.x")
    with pytest.raises(ServiceError, match="is not a regular file"):
        read_token(Path("/dev/null"), "auth.x")
    os.mkfifo(tmp_path / "fifo", 0o600)
    with pytest.raises(ServiceError, match="is not a regular file"):
        read_token(tmp_path / "fifo", "auth.x")  # nobody writes: reading would take forever


def test_links_are_followed(tmp_path: Path) -> None:
    secret(tmp_path / "t", VALUE)
    (tmp_path / "link").symlink_to(tmp_path / "t")
    assert read_token(tmp_path / "link", "auth.x").matches(VALUE)
