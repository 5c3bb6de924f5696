"""An os-ken controller that installs permanent rules on the first switch that connects, and leaves.

lab.openflow runs it with an address, a port, and on standard input a JSON list of rules
as for ovs-ofctl.

All rules go into one bundle (OpenFlow 1.4, 6.9): all of them hold or none. Needs
the extra os-ken of the package.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any

from os_ken import cfg
from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, HANDSHAKE_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.ofproto import ofproto_v1_4

from vigia.errors import VigiaError
from vigia.lab.ofrules import FlowAction, FlowRule, translate

__all__ = ["Beforehand", "main", "run"]

_BUNDLE = 1
_PATIENCE = 60.0
"""Seconds until the switch has connected."""


class Beforehand(app_manager.OSKenApp):  # type: ignore[misc] # os-ken has no types
    """Fills the table of the first switch."""

    OFP_VERSIONS = [ofproto_v1_4.OFP_VERSION]
    rules: Sequence[FlowRule] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.connected, self.finished = threading.Event(), threading.Event()
        self.problem = ""

    @set_ev_cls(ofp_event.EventOFPStateChange, MAIN_DISPATCHER)  # type: ignore[misc]
    def _connected(self, event: Any) -> None:
        if not self.connected.is_set():
            self.connected.set()
            _send(event.datapath, self.rules)

    @set_ev_cls(ofp_event.EventOFPBarrierReply, MAIN_DISPATCHER)  # type: ignore[misc]
    def _complete(self, event: Any) -> None:
        if not self.problem:
            _control(event.msg.datapath, event.msg.datapath.ofproto.OFPBCT_COMMIT_REQUEST)

    @set_ev_cls(ofp_event.EventOFPBundleCtrlMsg, MAIN_DISPATCHER)  # type: ignore[misc]
    def _answered(self, event: Any) -> None:
        if event.msg.type == event.msg.datapath.ofproto.OFPBCT_COMMIT_REPLY:
            self.finished.set()

    @set_ev_cls(  # type: ignore[misc]
        ofp_event.EventOFPErrorMsg, [HANDSHAKE_DISPATCHER, CONFIG_DISPATCHER, MAIN_DISPATCHER]
    )
    def _refused(self, event: Any) -> None:
        self.problem = self.problem or f"the switch refuses: type {event.msg.type}, code {event.msg.code}"
        self.finished.set()


def _flags(ofproto: Any) -> int:
    return int(ofproto.OFPBF_ATOMIC | ofproto.OFPBF_ORDERED)


def _control(datapath: Any, kind: int) -> None:
    parser, flags = datapath.ofproto_parser, _flags(datapath.ofproto)
    datapath.send_msg(parser.OFPBundleCtrlMsg(datapath, _BUNDLE, kind, flags, []))


def _send(datapath: Any, rules: Sequence[FlowRule]) -> None:
    ofproto, parser = datapath.ofproto, datapath.ofproto_parser

    def add(message: Any) -> None:
        outer = parser.OFPBundleAddMsg(datapath, _BUNDLE, _flags(ofproto), message, [])
        datapath.set_xid(outer)
        datapath.send_msg(outer)

    _control(datapath, ofproto.OFPBCT_OPEN_REQUEST)
    everything = {"table_id": ofproto.OFPTT_ALL, "command": ofproto.OFPFC_DELETE}
    anywhere = {"out_port": ofproto.OFPP_ANY, "out_group": ofproto.OFPG_ANY}
    add(parser.OFPFlowMod(datapath, **everything, **anywhere))
    for rule in rules:
        actions = [_action(a, ofproto, parser) for a in rule.actions]
        apply = [parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, actions)] if actions else []
        match = parser.OFPMatch(**rule.match)
        add(
            parser.OFPFlowMod(
                datapath, cookie=rule.cookie, priority=rule.priority, match=match, instructions=apply
            )
        )
    # What is wrong with a rule is said before this is answered, and does not spoil the bundle by itself.
    datapath.send_msg(parser.OFPBarrierRequest(datapath))


def _action(action: FlowAction, ofproto: Any, parser: Any) -> Any:
    match action.kind:
        case "normal":
            return parser.OFPActionOutput(ofproto.OFPP_NORMAL)
        case "output":
            return parser.OFPActionOutput(action.value)
        case "push_vlan":
            return parser.OFPActionPushVlan(action.value)
        case _:
            return parser.OFPActionSetField(**{action.field: action.value})


def main(arguments: Sequence[str], text: str) -> str:
    """Install the rules and return what went wrong, nothing if nothing did."""
    address, port = arguments
    try:
        Beforehand.rules = [translate(rule) for rule in json.loads(text)]
    except VigiaError as e:
        return str(e)
    cfg.CONF(args=[], project="os_ken")
    cfg.CONF.set_override("ofp_listen_host", address)
    cfg.CONF.set_override("ofp_tcp_listen_port", int(port))
    manager = app_manager.AppManager.get_instance()
    manager.load_apps([__name__])
    manager.instantiate_apps(**manager.create_contexts())
    app = next(a for a in manager.applications.values() if isinstance(a, Beforehand))
    if not app.connected.wait(_PATIENCE):
        return f"no switch connected to {address}:{port} within {_PATIENCE:g} s"
    app.finished.wait()  # whoever runs this ends it if the switch never answers
    return str(app.problem)


def run() -> None:
    """Do what the command line says, and end the process with all its threads, which wait for switches."""
    said = main(sys.argv[1:], sys.stdin.read())
    sys.stderr.write(f"{said}\n" if said else "")
    sys.stderr.flush()
    os._exit(1 if said else 0)
