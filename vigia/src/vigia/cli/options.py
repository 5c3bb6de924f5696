"""Options that several commands have, and the kinds of values that they take."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vigia.lab.clouds import CLOUDS, PLAIN

if TYPE_CHECKING:
    from vigia.console import Steps
    from vigia.lab.model import Lab

__all__ = [
    "Duration",
    "Number",
    "Rate",
    "cloud_option",
    "datapath_option",
    "json_option",
    "lab_of",
    "lab_option",
    "steps_of",
    "topology_option",
]

F = TypeVar("F", bound=Callable[..., Any])

lab_option = click.option(
    "--lab",
    "name",
    default="demo",
    envvar="VIGIA_LAB",
    show_default=True,
    metavar="NAME",
    help="Name of the lab.",
)
topology_option = click.option(
    "--topology",
    "file",
    type=click.Path(path_type=Path),
    help="Topology file; without it the demo's or the cloud's, which come with the program.",
)
cloud_option = click.option(
    "--cloud",
    type=click.Choice(list(CLOUDS)),
    default=PLAIN,
    show_default=True,
    help="What controls the lab's network: " + "; ".join(f"{n}: {what}" for n, what in CLOUDS.items()) + ".",
)
datapath_option = click.option(
    "--ovs-datapath",
    "wish",
    type=click.Choice(["auto", "kernel", "userspace"]),
    default="auto",
    show_default=True,
    help="Where Open vSwitch forwards; auto takes the kernel module if it is there.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON; steps go to stderr.")


def lab_of(file: Path | None, cloud: str = PLAIN) -> Lab:
    """Return the lab of a topology file, or that which a cloud has without one. Raises ConfigError."""
    from vigia.lab import clouds, model, topology

    return model.resolve(topology.load(file) if file else topology.default(clouds.load(cloud).topology))


def steps_of(as_json: bool) -> Steps:
    """Return where the steps of a command are shown: beside JSON on stderr."""
    import sys

    from vigia.console import Steps

    return Steps(sys.stderr if as_json else sys.stdout)


class Duration(click.ParamType[float]):
    """A time with its unit, between two bounds, as seconds."""

    name = "duration"

    _FORM = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)(ms|s|m|h|d)")
    _UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

    def __init__(self, least: str, most: str, example: str) -> None:
        """least and most are allowed, and are written as they are typed, like the example."""
        self._least, self._most, self._example = least, most, example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds, or refuse the value."""
        if isinstance(value, float):
            return value
        seconds = self._seconds(value)
        if seconds is None:
            self.fail(f'"{value}" is not a duration; write for example {self._example}', param, ctx)
        low, high = self._seconds(self._least), self._seconds(self._most)
        if low is None or high is None or not low <= seconds <= high:
            self.fail(f'"{value}" is out of range; write {self._least} to {self._most}', param, ctx)
        return seconds

    @classmethod
    def _seconds(cls, text: str) -> float | None:
        match = cls._FORM.fullmatch(text)
        return float(match[1]) * cls._UNITS[match[2]] if match else None


class Rate(click.ParamType[str]):
    """A data rate with its unit, between two bounds, as it was written."""

    name = "rate"

    _FORM = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)(k|M|G)?bit")
    _UNITS = {None: 1.0, "k": 1e3, "M": 1e6, "G": 1e9}

    def __init__(self, least: str, most: str) -> None:
        """least and most are allowed, and are written as they are typed."""
        self._least, self._most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text, or refuse it."""
        text = str(value)
        bits = self._bits(text)
        if bits is None:
            self.fail(f'"{text}" is not a rate; write for example 200Mbit, 1Gbit or 64kbit', param, ctx)
        low, high = self._bits(self._least), self._bits(self._most)
        if low is None or high is None or not low <= bits <= high:
            self.fail(f'"{text}" is out of range; write {self._least} to {self._most}', param, ctx)
        return text

    @classmethod
    def _bits(cls, text: str) -> float | None:
        match = cls._FORM.fullmatch(text)
        return float(match[1]) * cls._UNITS[match[2]] if match else None


class Number(click.ParamType[float]):
    """A number above one bound and at most another."""

    name = "number"

    def __init__(self, above: float, most: float) -> None:
        self._above, self._most = above, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or refuse the value."""
        try:
            number = float(value)
        except ValueError:
            self.fail(f'"{value}" is not a number; write for example {self._most / 10:g}', param, ctx)
        if math.isnan(number) or not self._above < number <= self._most:
            self.fail(
                f'"{value}" is out of range; write above {self._above:g}, at most {self._most:g}', param, ctx
            )
        return number
