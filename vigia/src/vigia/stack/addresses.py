"""What there is to open in a browser or to ask, once a lab and its stack are up."""

from __future__ import annotations

from vigia.lab.model import Lab
from vigia.stack import places
from vigia.stack.places import Places
from vigia_text import tables

__all__ = ["as_table", "of"]


def of(lab: Lab, where: Places) -> dict[str, str]:
    """Return the addresses by name, and the file with the token that the isolation agent asks for."""
    first = lab.nodes[0]
    return {
        "prometheus": f"http://{places.stack_address(lab, 9090)}/graph",
        "alertmanager": f"http://{places.stack_address(lab, 9093)}/api/v2/alerts",
        "console": f"http://{places.stack_address(lab, 9874)}/",
        "comparison": f"http://{places.stack_address(lab, 9875)}/",
        "actions": f"http://{places.stack_address(lab, 9874)}/v1/actions",
        "api_token": str(where.api_token),
        "probe": f"http://{places.agent_address(lab, first.name, 'vigia-probe')}/",
        "exporter": f"http://{places.agent_address(lab, first.name, 'vigia-exporter')}/debug/ports",
    }


def as_table(lab: Lab, where: Places) -> str:
    """Return the addresses for people, and what to run next."""
    a = of(lab, where)
    first = lab.nodes[0].name
    rows = [
        ("Prometheus", a["prometheus"]),
        ("alerts", f"{a['alertmanager']}   as vigia, with the content of {where.alertmanager_password}"),
        ("console", f"{a['console']}   sign in with the content of {a['api_token']}"),
        ("comparison", a["comparison"]),
        ("isolation actions", f'curl -sH "Authorization: Bearer $(cat {a["api_token"]})" {a["actions"]}'),
        (f"probe of {first}", a["probe"]),
        (f"ports of {first}", a["exporter"]),
        ("play a flood", ".venv/bin/vigia demo --path ovs-vxlan"),
        ("remove everything", "make down"),
    ]
    return tables.table(("what", "where"), rows)
