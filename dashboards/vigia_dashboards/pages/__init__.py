"""The dashboards, home first."""

from vigia_dashboards.model import Dashboard
from vigia_dashboards.pages import comparison, health, incident, now, own, paths, studies, switches, tenants

__all__ = ["PAGES"]

PAGES: tuple[Dashboard, ...] = (
    now.NOW,
    incident.INCIDENT,
    paths.FLEET,
    paths.DETAIL,
    comparison.CONFIGURATIONS,
    tenants.INTERFERENCE,
    switches.OPENFLOW,
    tenants.ISOLATION,
    health.SELF,
    switches.HOST,
    paths.OBJECTIVES,
    studies.STUDIES,
    own.OWN,
)
