"""What the pages of all services share: one bar, wherever it is shown, one icon, and styles that win."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from flask import Flask, request

from vigia_service import look
from vigia_service.look import NAVIGATION, Service, bar

NAMES = ["Comparison", "Mesh", "Tenants", "Incidents", "Approvals and kill switch"]
KEYS = [e.key for e in NAVIGATION]


def links(markup: str) -> dict[str, str]:
    return {text: address for address, text in re.findall(r'<a href="([^"]*)"[^>]*>([^<]*)</a>', markup)}


def test_every_service_shows_the_same_names_in_the_same_order() -> None:
    of_pages = links(bar("mesh", Service.PAGES, "http://h:9874/"))
    of_console = links(bar("isolation", Service.CONSOLE, "https://h/pages/"))
    assert list(of_pages) == list(of_console) == NAMES
    assert list(of_pages.values()) == ["/", "/mesh", "/tenants", "/incidents", "http://h:9874/"]
    assert list(of_console.values()) == [
        *(f"https://h/pages/{path}" for path in ("", "mesh", "tenants", "incidents")),
        "/",
    ]


@pytest.mark.parametrize("key", KEYS)
def test_one_page_is_marked_and_it_is_the_one(key: str) -> None:
    entry = next(e for e in NAVIGATION if e.key == key)
    markup = bar(key, entry.service, "http://h/")
    assert re.findall(r'aria-current="page">([^<]*)<', markup) == [entry.text]
    ElementTree.fromstring(markup)  # noqa: S314 - our own


def test_pages_elsewhere_that_are_not_known_are_named_and_not_linked() -> None:
    markup = bar("isolation", Service.CONSOLE, "")
    assert list(links(markup)) == [NAMES[-1]]
    assert re.findall(r">([^<>\n]+)<", markup) == NAMES


def test_an_address_is_text() -> None:
    markup = bar("mesh", Service.PAGES, 'http://h/"><script>&')
    assert "<script>" not in markup and "&quot;&gt;&lt;script&gt;&amp;" in markup


@pytest.mark.parametrize(
    ("configured", "base", "service", "address"),
    [
        ("", "http://h:9875", Service.CONSOLE, "http://h:9874/"),
        ("", "https://[fd00::1]:9874", Service.PAGES, "https://[fd00::1]:9875/"),
        ("https://elsewhere/x/", "http://h:9875", Service.CONSOLE, "https://elsewhere/x/"),
    ],
)
def test_where_another_service_is(configured: str, base: str, service: Service, address: str) -> None:
    with Flask("test").test_request_context("/", base_url=base):
        assert look.where(configured, request, service) == address


def test_a_request_to_no_host_leads_nowhere() -> None:
    with Flask("test").test_request_context("/", environ_overrides={"HTTP_HOST": '"><b>'}):
        assert look.where("", request, Service.PAGES) == ""


def test_what_is_assumed_is_said_with_its_field() -> None:
    assert look.assumed("pages", Service.PAGES) == (
        "pages is not set: links lead to port 9875 of the host that a browser asks"
    )


def test_own_rules_come_last() -> None:
    found = look.styles("header { color: red; }\n")
    assert found.text.startswith(":root {") and found.text.endswith("\nheader { color: red; }")
    assert found.text.index("header nav a") < found.text.index("header { color: red; }")
    assert found.source != look.styles("").source


def test_the_colours_of_the_dark_are_all_there() -> None:
    """Each that a page may use by day has one for the night."""
    light, dark = look.styles("").text.split("@media (prefers-color-scheme: dark)")
    names = set(re.findall(r"(--[a-z-]+):", light))
    assert names and names == set(re.findall(r"(--[a-z-]+):", dark))


def test_the_icon_is_a_picture_that_asks_for_nothing() -> None:
    root = ElementTree.fromstring(look.ICON)  # noqa: S314 - our own
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert b"href" not in look.ICON and b"<script" not in look.ICON
    assert look.ICON_TYPE == "image/svg+xml"
