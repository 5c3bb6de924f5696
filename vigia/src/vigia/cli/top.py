"""vigia top."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from vigia.cli.options import Duration, json_option, lab_option
from vigia.errors import OptionError, VigiaError

if TYPE_CHECKING:
    import httpx
    from rich.console import RenderableType

__all__ = ["top"]


@click.command()
@lab_option
@click.option("--url", metavar="URL", help="vigia-compare to ask; default: that of the lab's stack.")
@click.option("--once", is_flag=True, help="Print once and end; so it is where nobody watches, too.")
@click.option(
    "--every",
    type=Duration("1s", "10m", "5s or 1m"),
    default="5s",
    show_default=True,
    help="Time between two looks.",
)
@json_option
def top(name: str, url: str | None, once: bool, every: float, as_json: bool) -> None:
    """Show tenants and paths, worst first, and what is wrong now.

    Refreshes until Ctrl-C. It shows what vigia-compare serves under /v1/site, without colours where NO_COLOR
    is set.
    """
    import httpx

    from vigia import console

    address = _address(name, url)
    with httpx.Client(trust_env=False, follow_redirects=False) as client:
        if as_json:
            console.print_json(_data(client, address))
        elif once or not console.is_watched():
            console.show(_drawn(client, address, None))
        else:
            console.watch(lambda lines: _drawn(client, address, lines), every)


def _address(name: str, url: str | None) -> str:
    from vigia.lab import state
    from vigia.stack import places
    from vigia_config.urls import base_url

    if url is None:
        return f"http://{places.stack_address(state.running(name).lab, 9875)}"
    try:
        return base_url(url, "vigia-compare", "http://127.0.0.1:9875")
    except ValueError as e:
        raise OptionError(f'--url "{url}" {e}') from e


def _data(client: httpx.Client, address: str) -> object:
    from vigia.top import site
    from vigia_json import loads

    _, raw = site.look(client, address)
    try:
        return loads(raw, max_size=len(raw))
    except ValueError as e:
        raise VigiaError(f"{address} does not serve a site of vigia-compare: {e}") from e


def _drawn(client: httpx.Client, address: str, lines: int | None) -> RenderableType:
    from vigia.top import screen, site

    return screen.draw(site.look(client, address)[0], lines)
