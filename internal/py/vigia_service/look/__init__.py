"""What the pages of all services have in common: the navigation bar, the icon, colours and letters."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from html import escape
from pathlib import Path

from flask import Request

from vigia_service.beside import beside
from vigia_service.styles import Styles

__all__ = ["ICON", "ICON_TYPE", "NAVIGATION", "Entry", "Service", "assumed", "bar", "styles", "where"]

_FOLDER = Path(__file__).parent
ICON = (_FOLDER / "icon.svg").read_bytes()
ICON_TYPE = "image/svg+xml"


class Service(Enum):
    """A service that has pages; its value is the port that it listens on if nobody says otherwise."""

    CONSOLE = 9874
    PAGES = 9875


@dataclass(frozen=True)
class Entry:
    """A page that people open."""

    key: str
    service: Service
    path: str
    """Below the service's address."""
    text: str


NAVIGATION = (
    Entry("comparison", Service.PAGES, "", "Comparison"),
    Entry("mesh", Service.PAGES, "mesh", "Mesh"),
    Entry("tenants", Service.PAGES, "tenants", "Tenants"),
    Entry("incidents", Service.PAGES, "incidents", "Incidents"),
    Entry("isolation", Service.CONSOLE, "", "Approvals and kill switch"),
)
"""The pages of all services, in the order in which each shows them."""


def where(configured: str, request: Request, service: Service) -> str:
    """Return the address of another service: as configured, else its port on the host that was asked.

    Empty where neither is known: a request may name no host.
    """
    return configured or beside(request, service.value)


def assumed(field: str, service: Service) -> str:
    """Return what is logged where no address of another service is configured."""
    return f"{field} is not set: links lead to port {service.value} of the host that a browser asks"


def bar(current: str, here: Service, elsewhere: str) -> str:
    """Return the navigation as markup.

    ``current`` is the key of the page it is on, ``here`` the service that answers, and ``elsewhere`` the
    address of the other one with its last slash; if that is empty, its pages are named without a link.
    """
    items = []
    for entry in NAVIGATION:
        base = "/" if entry.service is here else elsewhere
        mark = ' aria-current="page"' if entry.key == current else ""
        if base:
            items.append(f'<li><a href="{escape(base + entry.path)}"{mark}>{escape(entry.text)}</a></li>')
        else:
            items.append(f'<li><span class="soft">{escape(entry.text)}</span></li>')
    inside = "\n".join(items)
    return f'<nav aria-label="Pages"><ul>\n{inside}\n</ul></nav>'


def styles(own: str) -> Styles:
    """Return what all pages look like, followed by a service's own rules. Raises ValueError as Styles.of."""
    return Styles.of((_FOLDER / "look.css").read_text(encoding="utf-8") + "\n" + own)
