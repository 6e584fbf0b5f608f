//! Profiles that code builds: frames of given sizes, and latency probes.

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use units::{Bytes, Span};

use crate::capture::udp_frame;
use crate::profile::{AddressesInMac, Distribution, Pool, Template};
use crate::run::{Lane, Probe};
use crate::{Capture, Frequency, GenError, Plan, PlanOptions, Profile};

/// The sizes of a test's frames on the wire, including the check sequence, with the share of each
/// size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameMix {
    pub name: String,
    sizes: Vec<(Bytes, u32)>,
}

/// Reads a profile and the captures that it names. If the file does not exist, `path` may name a
/// shipped profile.
pub fn load(path: &Path) -> Result<(Profile, Vec<Capture>), GenError> {
    let file = path.display().to_string();
    let text = match crate::capture::read(path, LONGEST_PROFILE) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(GenError::Unreadable { reason, .. }) if reason.kind() == ErrorKind::NotFound => {
            let shipped = crate::profile::shipped(path);
            shipped.map(str::to_owned).ok_or(GenError::NoProfile { file: file.clone(), reason })?
        }
        Err(error) => return Err(error),
    };
    let profile = Profile::parse(&file, &text)?;
    let mut captures = Vec::with_capacity(profile.templates.len());
    let mut bytes = 0;
    for template in &profile.templates {
        let capture = Capture::find(&template.name, Some(path)).map_err(|error| match error {
            GenError::Capture { file: name, problem } => {
                GenError::Capture { file: format!("{file}:{}: {name}", template.line), problem }
            }
            other => other,
        })?;
        bytes += capture.packets.iter().map(|packet| packet.bytes.len()).sum::<usize>();
        if bytes > MOST_BYTES {
            return Err(GenError::Usage(format!(
                "{file}: the captures of all templates have more than {} MiB: name fewer or shorter \
                 ones",
                MOST_BYTES >> 20
            )));
        }
        captures.push(capture);
    }
    Ok((profile, captures))
}

impl FrameMix {
    pub fn of(size: Bytes) -> Self {
        Self { name: size.count().to_string(), sizes: vec![(size, 1)] }
    }

    /// Returns the "simple IMIX": seven frames of 64 bytes, four frames of 594 bytes and one frame
    /// of 1518 bytes.
    pub fn imix() -> Self {
        let sizes = vec![(Bytes::new(64), 7), (Bytes::new(594), 4), (Bytes::new(1518), 1)];
        Self { name: "imix".to_owned(), sizes }
    }

    /// Builds a profile that sends one packet per second in total, so that the run's multiplier
    /// equals the packet rate.
    pub fn profile(&self, flows: u32, duration: Span) -> (Profile, Vec<Capture>) {
        let whole: u32 = self.sizes.iter().map(|(_, share)| share).sum();
        let mut templates = Vec::new();
        for (size, share) in &self.sizes {
            let flows_a_second = f64::from(*share) / f64::from(whole);
            let limit = (flows / self.sizes.len() as u32).max(1);
            templates.push(template(&size.to_string(), flows_a_second, limit));
        }
        let captures = self.sizes.iter().map(|(size, _)| udp_frame(*size)).collect();
        let clients = pool(Ipv4Addr::new(16, 0, 0, 1), Ipv4Addr::new(16, 0, 0, 255));
        let servers = pool(Ipv4Addr::new(48, 0, 0, 1), Ipv4Addr::new(48, 0, 255, 255));
        (profile(clients, servers, templates, duration), captures)
    }
}

impl FromStr for FrameMix {
    type Err = GenError;

    fn from_str(text: &str) -> Result<Self, GenError> {
        if text.eq_ignore_ascii_case("imix") {
            return Ok(Self::imix());
        }
        let size: Bytes = text.parse().map_err(|_| wrong_size(text))?;
        match size.count() {
            64..=9234 => Ok(Self::of(size)),
            _ => Err(wrong_size(text)),
        }
    }
}

impl Probe {
    /// Builds latency probes with this packet rate, for each direction of each pair of lanes that
    /// receive.
    pub fn streams(lanes: &[Lane], plan: &Plan, rate: Frequency) -> Result<Vec<Self>, GenError> {
        let Some((client, server)) = plan.first_pair() else { return Ok(Vec::new()) };
        let mut probes = Vec::new();
        let pairs = lanes.len().div_ceil(2);
        for pair in 0..pairs {
            let sides: &[(usize, usize)] = match lanes.len() {
                1 => &[(0, 0)],
                _ => &[(0, 1), (1, 0)],
            };
            for (from, to) in sides {
                let (from, to) = (pair * 2 + from, pair * 2 + to);
                let (source, destination) =
                    if from <= to { (client, server) } else { (server, client) };
                let template = template("latency", rate.events(), 1);
                let profile = profile(
                    pool(source, source),
                    pool(destination, destination),
                    vec![template],
                    Span::from_secs(1),
                );
                let addresses = [lanes[from].addresses()];
                let options = PlanOptions { stamped: true, ..PlanOptions::default() };
                let captures = [udp_frame(Bytes::new(64))];
                let plan = Plan::new(&profile, &captures, &addresses, options)?;
                probes.push(Self { plan: Arc::new(plan), lanes: vec![from] });
            }
        }
        Ok(probes)
    }
}

fn wrong_size(text: &str) -> GenError {
    GenError::Usage(format!(
        "`{}` is no size of frames: 64 to 9234 bytes with the check sequence, or imix",
        units::foreign(text)
    ))
}

fn template(name: &str, flows: f64, limit: u32) -> Template {
    Template {
        line: 0,
        name: name.to_owned(),
        flows: Frequency::per_second(flows),
        gap: Span::ZERO,
        turn_gap: Span::ZERO,
        window: 1,
        limit: Some(limit),
        capture_times: false,
        keep_source_port: false,
        only_server: None,
        client_pool: 0,
        server_pool: 0,
        edits: Vec::new(),
        plugin: None,
        directions: Vec::new(),
    }
}

fn pool(first: Ipv4Addr, last: Ipv4Addr) -> Pool {
    Pool {
        name: "default".to_owned(),
        first,
        last,
        distribution: Distribution::Sequential,
        dual_port_mask: 0x0100_0000,
        tcp_aging: Span::ZERO,
        udp_aging: Span::ZERO,
    }
}

fn profile(clients: Pool, servers: Pool, templates: Vec<Template>, duration: Span) -> Profile {
    Profile {
        duration,
        client_pools: vec![clients],
        server_pools: vec![servers],
        templates,
        vlans: None,
        addresses_in_mac: AddressesInMac::None,
        ipv6: None,
        shortest_gap: None,
        notes: Vec::new(),
    }
}

/// Maximum size of a profile that is read. For long profiles below this size, the parser gives a
/// better error message.
const LONGEST_PROFILE: u64 = 64 << 20;
/// Maximum memory for packets: each template keeps the packets of its capture.
const MOST_BYTES: usize = 1 << 30;
