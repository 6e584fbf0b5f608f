//! The report's traffic: its profile with any number of flows, and the packets of the profile as
//! captures.

use super::rule_set::FIRST_SERVER;
use crate::model::Failure;
use generator::capture::CaptureWriter;
use generator::{
    Addressing, Capture, GenError, LaneAddresses, Plan, PlanOptions, Profile, Traffic,
};
use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use units::Time;

/// The packets of a profile: every five-tuple once.
#[derive(Debug)]
pub(crate) struct Packets {
    pub(crate) frames: Vec<Vec<u8>>,
}

/// Returns the report's profile with `flows` flows, of which `cps` begin each second. The profile
/// has the report's 65,535 servers, or as many servers as there are rules.
pub(crate) fn profile_text(flows: u32, cps: f64) -> String {
    let last = FIRST_SERVER.saturating_add(flows.max(REPORTED_SERVERS) - 1);
    let servers_end = Ipv4Addr::from(last);
    format!(
        "- duration : 1\n  generator :\n          distribution : \"seq\"\n          \
         clients_start : \"16.0.0.1\"\n          clients_end   : \"16.0.0.255\"\n          \
         servers_start : \"48.0.0.1\"\n          servers_end   : \"{servers_end}\"\n          \
         clients_per_gb : 201\n          min_clients    : 101\n          \
         dual_port_mask : \"1.0.0.0\"\n          tcp_aging      : 0\n          \
         udp_aging      : 0\n  cap_info :\n     - name: cap2/udp_64B.pcap\n       cps   : {cps:.1}\n       \
         ipg   : 10000\n       rtt   : 10000\n       w     : 1\n       limit : {flows}\n"
    )
}

impl Packets {
    /// Generates the first packets of the profile. Fails if the packets have fewer five-tuples than
    /// the profile's limit.
    pub(crate) fn of(flows: u32, order: Addressing) -> Result<Self, Failure> {
        let text = profile_text(flows, 1e6);
        let wrong = |reason: String| Failure::Workload(format!("the traffic's profile: {reason}"));
        let profile = Profile::parse("flow-rules.yaml", &text).map_err(|e| wrong(e.to_string()))?;
        let missing = || wrong("there is no capture udp_64B".to_owned());
        let capture = Capture::built_in("cap2/udp_64B.pcap").ok_or_else(missing)?;
        let lane = LaneAddresses { source: SOURCE, destination: GATEWAY, vlan: None };
        let options = PlanOptions { addressing: order, ..PlanOptions::default() };
        let plan = Plan::new(&profile, &[capture], &[lane], options);
        let plan = Arc::new(plan.map_err(|e| wrong(e.to_string()))?);
        let mut buffer = vec![0; plan.longest()];
        let mut traffic = Traffic::new(plan, 1.0, 0, 1);
        let mut frames = Vec::with_capacity(flows as usize);
        while frames.len() < flows as usize {
            let Some(departure) = traffic.take(Time::ZERO, &mut buffer) else { break };
            frames.push(buffer.get(..departure.len).unwrap_or_default().to_vec());
        }
        let tuples: HashSet<&[u8]> = frames.iter().filter_map(|frame| tuple(frame)).collect();
        match tuples.len() == flows as usize {
            true => Ok(Self { frames }),
            false => Err(wrong(format!("{} five-tuples instead of {flows}", tuples.len()))),
        }
    }

    /// Writes all frames to one capture, and the frames of each queue to a capture of its own.
    /// Repeats a short list, because DPDK refuses a capture that is shorter than a batch.
    pub(crate) fn write(
        &self,
        folder: &Path,
        queues: usize,
    ) -> Result<(PathBuf, Vec<PathBuf>), Failure> {
        let whole = folder.join("all.pcap");
        self.write_part(&whole, 1, 0)?;
        if queues < 2 {
            return Ok((whole.clone(), vec![whole]));
        }
        let part = |queue: usize| {
            let path = folder.join(format!("queue{queue}.pcap"));
            self.write_part(&path, queues, queue).map(|()| path)
        };
        let parts: Result<Vec<PathBuf>, Failure> = (0..queues).map(part).collect();
        Ok((whole, parts?))
    }

    fn write_part(&self, path: &Path, queues: usize, queue: usize) -> Result<(), Failure> {
        let own = || self.frames.iter().skip(queue % self.frames.len().max(1)).step_by(queues);
        let times = SHORTEST.div_ceil(own().count().max(1));
        let write = || -> Result<(), GenError> {
            let mut writer = CaptureWriter::create(path)?;
            for _ in 0..times {
                own().try_for_each(|frame| writer.write(frame, Time::ZERO))?;
            }
            writer.finish()
        };
        write().map_err(|error| Failure::Workload(error.to_string()))
    }
}

/// Returns the addresses and ports of an Ethernet frame with IPv4 and UDP. The protocol is the same
/// in all frames.
fn tuple(frame: &[u8]) -> Option<&[u8]> {
    frame.get(26..38)
}

/// Number of servers in the report's profile.
const REPORTED_SERVERS: u32 = 65_535;
const SOURCE: [u8; 6] = [0x02, 0xac, 0x10, 0xff, 0x00, 0x03];
/// The hardware address of the gateway in the report's traffic.
const GATEWAY: [u8; 6] = [0x02, 0xac, 0x10, 0xff, 0x01, 0x01];
const SHORTEST: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(frame: &[u8]) -> (Ipv4Addr, Ipv4Addr) {
        let at = |place: usize| {
            Ipv4Addr::new(frame[place], frame[place + 1], frame[place + 2], frame[place + 3])
        };
        (at(26), at(30))
    }

    #[test]
    fn both_orders_have_as_many_five_tuples_as_the_limit() {
        for order in [Addressing::Lockstep, Addressing::Destination] {
            for flows in [1, 255, 256, 65_535, 65_536, 262_144] {
                assert_eq!(Packets::of(flows, order).unwrap().frames.len() as u32, flows);
            }
        }
    }

    /// In the report's order the source stays while the destination advances; in TRex's order both
    /// advance.
    #[test]
    fn the_addressing_orders_differ_in_their_sources() {
        let sources = |order| {
            let packets = Packets::of(1_000, order).unwrap();
            let sources = packets.frames.iter().map(|frame| addresses(frame).0);
            sources.collect::<HashSet<_>>().len()
        };
        assert_eq!(sources(Addressing::Destination), 1);
        assert_eq!(sources(Addressing::Lockstep), 255);
    }

    #[test]
    fn profile_destinations_are_the_servers_of_the_rule_sets() {
        for order in [Addressing::Lockstep, Addressing::Destination] {
            let packets = Packets::of(70_000, order).unwrap();
            let to: HashSet<u32> =
                packets.frames.iter().map(|frame| addresses(frame).1.into()).collect();
            assert_eq!(to.len(), 70_000);
            assert_eq!(to.iter().min(), Some(&FIRST_SERVER));
            assert_eq!(to.iter().max(), Some(&(FIRST_SERVER + 69_999)));
        }
    }
}
