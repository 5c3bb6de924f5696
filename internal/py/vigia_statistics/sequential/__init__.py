"""Verdicts that stay true while people watch: tests, intervals and alarms that are valid at every look.

A ``Pair`` takes paired windows of two paths, one after the other, in O(1) each; ``LossPair`` takes counts of
probes. A ``Family`` holds all pairs and metrics that are shown together, and says of each who is better, that
they are equivalent, or how far it is from knowing. A ``Detector`` watches the level of one path by itself.

    family = Family()
    pair = family.watch("rtt ovs-gre/ovs-vxlan a-b", QUESTIONS["rtt"], started=now)
    pair.update(now + 15.0, a=61e-6, b=84e-6)      # windows of 15 s for the first hour, then of a minute
    verdict = family.judge(now + 15.0)["rtt ovs-gre/ovs-vxlan a-b"]
    verdict.said, verdict.progress                 # UNKNOWN, "a is ahead, e = 0.5 of 20 needed"

Everything here is plain computation: no clock, no file, no thread. ``as_data`` gives what JSON holds,
``from_data`` goes on where it stopped. Assumptions, guarantees, sources and measured error rates:
docs/concepts/statistics.md. Campaigns of planned size use the tests beside this package instead.
"""

from vigia_statistics.sequential.detector import Change, Detector
from vigia_statistics.sequential.family import Family, closed
from vigia_statistics.sequential.pair import LossPair, Pair
from vigia_statistics.sequential.question import QUESTIONS, Question, Scale
from vigia_statistics.sequential.verdict import Evidence, Said, Verdict

__all__ = [
    "QUESTIONS",
    "Change",
    "Detector",
    "Evidence",
    "Family",
    "LossPair",
    "Pair",
    "Question",
    "Said",
    "Scale",
    "Verdict",
    "closed",
]
