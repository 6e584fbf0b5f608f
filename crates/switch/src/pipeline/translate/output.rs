//! Outputs to ports and to controllers.

use super::Way;
use crate::action::Controller;
use crate::datapath::step::{ControllerStep, Step};
use crate::flow::{Field, Key, word};
use crate::pipeline::ports::{BridgePort, config};
use crate::port_number::PortNumber;

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
                self.search(0, false);
                self.nesting -= 1;
            }
            PortNumber::CONTROLLER => self.send_to_controller(&Controller {
                max_len,
                id: 0,
                reason: 1,
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

    /// Outputs to a port, whichever the packet came from.
    pub(super) fn emit(&mut self, port: PortNumber, truncate: Option<u32>) {
        let Some(port) = self.tables.port_set().port(port) else {
            self.note(">> Nonexistent output port");
            return;
        };
        if port.has(config::PORT_DOWN | config::NO_FORWARD) {
            return;
        }
        let index = port.index;
        self.commit();
        self.steps.extend(truncate.map(Step::Truncate));
        self.steps.push(Step::Output(index));
    }

    /// Outputs to all other ports that have none of these bits in their configuration.
    pub(super) fn flood(&mut self, excluded: u32) {
        let in_port = self.in_port();
        let tables = self.tables;
        let is_wanted =
            |port: &&BridgePort| port.description.number != in_port && !port.has(excluded);
        // The local port comes first, as OVS has it.
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
        let mut metadata = Key::ZERO;
        for index in 0..word::ETH_SRC {
            self.depend(index, u64::MAX);
            metadata.words[index] = self.flow.words[index];
        }
        let step = ControllerStep {
            max_len: controller.max_len,
            controller: controller.id,
            reason: controller.reason,
            table: self.table,
            cookie: self.cookie,
            userdata: controller.userdata.clone(),
            metadata,
        };
        self.steps.push(Step::Controller(Box::new(step)));
    }
}
