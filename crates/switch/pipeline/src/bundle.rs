use flow::request::{Change, PacketOut, Refusal};

use super::change::Log;
use super::tables::Tables;

impl Tables {
    /// Refuses a packet-out whose actions name an invalid group, meter, table or port.
    pub fn check_packet_out(&self, packet: &PacketOut) -> Result<(), Refusal> {
        self.check_actions(&packet.actions, None)
    }

    /// Makes all changes of rules and groups. If a change is refused, makes no change and returns
    /// the index of the refused change. Only checks changes of ports; the caller makes these
    /// changes. `packet_out` is called for each packet-out, after the earlier changes of the list
    /// are made.
    pub fn commit(
        &mut self,
        changes: &[Change],
        now_ms: u64,
        packet_out: &mut dyn FnMut(&Self, &PacketOut),
    ) -> Result<(), (usize, Refusal)> {
        let mut log = Log::default();
        let mut former_groups = None;
        for (index, change) in changes.iter().enumerate() {
            let outcome = match change {
                Change::Flow(change) => self.apply(change, now_ms, &mut log),
                Change::Group(change) => {
                    former_groups.get_or_insert_with(|| self.groups.clone());
                    self.change_groups(change, now_ms, &mut log)
                }
                Change::Port(change) => self.port_set().check(change),
                Change::PacketOut(packet) => {
                    self.check_packet_out(packet).map(|()| packet_out(self, packet))
                }
            };
            if let Err(refusal) = outcome {
                if let Some(groups) = former_groups {
                    self.groups = groups;
                }
                self.undo(log);
                return Err((index, refusal));
            }
        }
        self.finish(log, now_ms);
        self.invalidate();
        Ok(())
    }
}
