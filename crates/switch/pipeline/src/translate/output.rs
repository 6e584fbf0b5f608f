//! Outputs to ports and to controllers.

use flow::action::Controller;
use flow::port_number::PortNumber;
use flow::step::{ControllerStep, PortIndex, Step};
use flow::{Field, Key, word};

use super::Way;
use crate::ports::{BridgePort, config};

impl Way<'_> {
    pub(super) fn output(&mut self, port: PortNumber, max_len: u16, truncate: Option<u32>) {
        match port {
            PortNumber::IN_PORT => {
                let in_port = self.in_port();
                self.emit(in_port, truncate);
            }
            PortNumber::NORMAL => self.normal(),
            PortNumber::FLOOD => self.flood(config::NO_FLOOD),
            PortNumber::ALL => self.flood(0),
            PortNumber::TABLE if self.is_packet_out => {
                self.nesting += 1;
                self.search(0, false, true);
                self.nesting -= 1;
            }
            PortNumber::CONTROLLER => self.send_to_controller(&Controller {
                max_len,
                id: 0,
                reason: self.reason(),
                userdata: Vec::new(),
                pause: false,
                meter: None,
            }),
            PortNumber::NONE | PortNumber::TABLE => {}
            port => {
                if port == self.in_port() {
                    self.note(">> skipping output to input port");
                } else {
                    self.emit(port, truncate);
                }
            }
        }
    }

    /// Outputs a truncated packet. As in Open vSwitch, patch ports do not send truncated packets.
    pub(super) fn output_cut(&mut self, port: PortNumber, length: u32) {
        let is_patch = |port: &BridgePort| port.index == PortIndex::NONE;
        if self.tables.port_set().port(port).is_some_and(is_patch) {
            let number = port.0;
            self.note(&format!(">>>> output_trunc does not support patch port {number} <<<<"));
            return;
        }
        self.output(port, u16::MAX, Some(length));
    }

    /// Outputs to a port, even if it is the input port.
    pub(super) fn emit(&mut self, port: PortNumber, truncate: Option<u32>) {
        let Some(port) = self.tables.port_set().port(port) else {
            self.note(">> Nonexistent output port");
            return;
        };
        if port.has(config::PORT_DOWN | config::NO_FORWARD) {
            return;
        }
        let (index, number) = (port.index, port.description.number);
        if truncate.is_some() && index == PortIndex::NONE {
            self.note(">> Mirror truncate to a patch port, skipping output");
            return;
        }
        if let Some(patch) = self.tables.port_set().patch(number) {
            self.cross(patch);
        } else if index != PortIndex::NONE {
            self.commit();
            self.steps.extend(truncate.map(Step::Truncate));
            self.steps.push(Step::Output(index));
            self.outputs += 1;
        }
        if !self.tables.port_set().mirrors.is_empty() {
            self.mirror_sent(number);
        }
    }

    /// Outputs to all other ports. Leaves out ports whose configuration has a bit of `excluded`.
    pub(super) fn flood(&mut self, excluded: u32) {
        let in_port = self.in_port();
        let tables = self.tables;
        let is_wanted =
            |port: &&BridgePort| port.description.number != in_port && !port.has(excluded);
        // The local port comes first, as in Open vSwitch.
        let mut wanted: Vec<_> = tables.port_set().iter().filter(is_wanted).collect();
        wanted.sort_by_key(|port| port.description.number != PortNumber::LOCAL);
        for port in wanted {
            self.emit(port.description.number, None);
        }
    }

    pub(super) fn in_port(&mut self) -> PortNumber {
        PortNumber(self.read_field(Field::InPort) as u32)
    }

    pub(super) fn send_to_controller(&mut self, controller: &Controller) {
        self.commit();
        self.send_with(controller, None);
    }

    /// Sends the packet as it is now to a controller. `continuation`: the number of the state in
    /// which the packet waits.
    pub(super) fn send_with(&mut self, controller: &Controller, continuation: Option<u32>) {
        let mut metadata = Key::ZERO;
        for index in 0..word::CT {
            metadata.words[index] = self.read_metadata(index);
        }
        if self.has_given_results {
            let results = word::CT..word::ETH_SRC;
            metadata.words[results.clone()].copy_from_slice(&self.flow.words[results]);
        }
        // The Ethernet type tells the IP version of the connection's addresses.
        metadata.write(Field::EthType, self.flow.read(Field::EthType));
        metadata.write(Field::ActsetOutput, 0);
        let is_miss_rule = self.rule.as_ref().is_some_and(|rule| rule.is_table_miss());
        let reason = match controller.reason {
            ACTION if is_miss_rule => EXPLICIT_MISS,
            reason => reason,
        };
        let is_home = self.tables.place == self.home.place;
        let step = ControllerStep {
            bridge: (!is_home).then_some(self.tables.place),
            max_len: controller.max_len,
            controller: controller.id,
            reason,
            table: self.table,
            cookie: self.cookie,
            userdata: controller.userdata.clone(),
            metadata,
            // If the fields were taken from `metadata`, each connection would need a separate
            // megaflow.
            is_tracked: self.is_tracked && !self.has_given_results,
            continuation,
            meter: self.tables.controller_meter(controller.meter),
        };
        self.steps.push(Step::Controller(Box::new(step)));
    }

    /// Returns OpenFlow's reason for an output to a controller.
    fn reason(&self) -> u8 {
        if self.is_packet_out {
            PACKET_OUT
        } else if self.is_in_bucket {
            GROUP
        } else if self.is_in_set {
            ACTION_SET
        } else {
            ACTION
        }
    }
}

/// The reasons of packet-ins, numbered as in [`ControllerStep::reason`].
const ACTION: u8 = 1;
const ACTION_SET: u8 = 3;
const GROUP: u8 = 4;
const PACKET_OUT: u8 = 5;
const EXPLICIT_MISS: u8 = 6;
