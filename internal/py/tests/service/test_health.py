"""Asking an instance whether it is ready, whatever it is that answers there."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from vigia_service import health
from vigia_service.errors import ServiceError
from vigia_service.health import Answer, ask, is_url, url_of
from vigia_testing import eventually

PAGE = b"HTTP/1.1 %d %b\r\nContent-Length: %d\r\n\r\n%b"


def page(status: int, text: bytes) -> bytes:
    return PAGE % (status, b"Reason", len(text), text)


@contextlib.contextmanager
def answering(
    raw: bytes, *, hold: bool = False, where: str | None = None
) -> Iterator[tuple[str, list[bytes]]]:
    """Answer every connection with some bytes, whatever is asked; hold keeps it open afterwards."""
    asked: list[bytes] = []
    held: list[socket.socket] = []
    listener = socket.socket(socket.AF_UNIX if where else socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(where or ("127.0.0.1", 0))
    listener.listen()

    def serve() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            held.append(sock)
            with contextlib.suppress(OSError):
                asked.append(sock.recv(65_536))
                sock.sendall(raw)
                if not hold:
                    sock.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield (f"unix://{where}" if where else f"http://127.0.0.1:{listener.getsockname()[1]}/-/ready"), asked
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        for sock in held:
            sock.close()


@pytest.mark.parametrize(
    ("raw", "status", "text"),
    [
        (page(200, b"ready\n"), 200, "ready"),
        (page(200, b""), 200, ""),
        (page(503, b"  no evaluation so far \n"), 503, "no evaluation so far"),
        (page(404, b"not here"), 404, "not here"),
        (page(500, b"\xff\xfe"), 500, "\ufffd\ufffd"),
        (page(503, b"two\nlines\x1b[31m\x07 \xe2\x80\xaered"), 503, "two lines [31m   red"),
        (page(204, b""), 204, ""),
        (b"HTTP/1.0 200 OK\r\n\r\nready", 200, "ready"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nready\r\n0\r\n\r\n", 200, "ready"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n", 302, ""),
    ],
)
def test_what_an_instance_says(raw: bytes, status: int, text: str) -> None:
    with answering(raw) as (url, asked):
        found = ask(url)
    assert found == Answer(url, status, text)
    assert found.ready == (status == 200), "only 200 is ready"
    assert asked[0].startswith(b"GET /-/ready HTTP/1.1\r\n")


def test_a_long_text_is_cut() -> None:
    with answering(page(503, b"x" * 100_000)) as (url, _):
        assert ask(url).text == "x" * health._MOST


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 99 Low\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\x15\x03\x03\x00\x02\x02\x46",
    ],
    ids=lambda v: str(v[:30]),
)
def test_what_is_no_answer_is_one_line(raw: bytes) -> None:
    with answering(raw) as (url, _), pytest.raises(ServiceError) as e:
        ask(url)
    said = str(e.value)
    assert said.startswith(f"cannot ask {url}: ") and said.endswith("; is the program running?")
    assert len(said) < 300


@pytest.mark.parametrize(
    "raw", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nrea"]
)
def test_an_instance_that_is_stuck_is_not_waited_for(raw: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_SECONDS", 0.1)
    with answering(raw, hold=True) as (url, _), pytest.raises(ServiceError, match="timed out"):
        ask(url)


def test_a_socket_in_the_file_system(tmp_path: Path) -> None:
    path = str(tmp_path / "service.sock")
    with answering(page(200, b"ready"), where=path) as (url, asked):
        assert ask(url_of(f"unix:{path}", tls=False)) == Answer(url, 200, "ready")
        assert asked[0].startswith(b"GET /-/ready HTTP/1.1\r\nHost: localhost\r\n")
    for missing in (path, str(tmp_path / "none"), str(tmp_path), "/" + "x" * 200):
        with pytest.raises(ServiceError, match="is the program running"):
            ask(f"unix://{missing}")


def test_nothing_is_asked_twice_and_no_connection_is_left() -> None:
    with answering(page(200, b"ready"), hold=True) as (url, asked):
        for n in range(1, 4):
            assert ask(url).ready
            eventually(lambda n=n: len(asked) == n, "the connection to be seen")


@pytest.mark.parametrize(
    ("listen", "tls", "url"),
    [
        ("127.0.0.1:9000", False, "http://127.0.0.1:9000/-/ready"),
        ("127.0.0.1:9000", True, "https://127.0.0.1:9000/-/ready"),
        ("[::1]:9000", False, "http://[::1]:9000/-/ready"),
        ("unix:/run/x.sock", False, "unix:///run/x.sock"),
        ("unix:/run/x.sock", True, "unix:///run/x.sock"),
    ],
)
def test_the_page_of_a_listener(listen: str, tls: bool, url: str) -> None:
    assert url_of(listen, tls=tls) == url


@pytest.mark.parametrize("url", ["http://x", "https://x:1/-/ready", "http://[::1]:9000/", "HTTP://x"])
def test_urls(url: str) -> None:
    assert is_url(url)


@pytest.mark.parametrize(
    "url",
    ["", "x", "x:9000", "ftp://x", "http://", "http://:9000", "http://x:0", "http://x:99999", "http://[::1"],
)
def test_urls_that_are_none(url: str) -> None:
    assert not is_url(url)
