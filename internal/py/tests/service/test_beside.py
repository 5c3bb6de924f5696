from __future__ import annotations

import pytest
from flask import Flask, request

from vigia_service.beside import beside


@pytest.mark.parametrize(
    ("base", "found"),
    [
        ("http://vigia.example:9875", "http://vigia.example:9874/"),
        ("http://127.0.0.1", "http://127.0.0.1:9874/"),
        ("https://[fd00::1]:9875", "https://[fd00::1]:9874/"),
    ],
)
def test_another_port_of_the_same_host(base: str, found: str) -> None:
    with Flask("x").test_request_context("/", base_url=base):
        assert beside(request, 9874) == found


@pytest.mark.parametrize("host", ['"><script>', "a b", "[fd00::1", "user@host", "host:port", "x" * 254])
def test_what_is_no_host_leads_nowhere(host: str) -> None:
    with Flask("x").test_request_context("/", environ_overrides={"HTTP_HOST": host}):
        assert beside(request, 9874) == ""
