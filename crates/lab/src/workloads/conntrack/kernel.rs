//! The kernel's tracker, in a namespace that forwards between two veth pairs.

use super::filling::{PATIENCE, watch};
use super::machine::account;
use crate::bench::machine::{MachineStep, Started};
use crate::model::{Failure, Measurement};
use crate::workloads::flow_rules::profile_text;
use crate::workloads::switches::finish;
use host::{Address, HostError, Namespace, Route, Sysctl};
use results::NOT_RUN;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

pub(super) const PROGRAMS: &[&str] = &["/usr/sbin/nft"];

pub(super) fn measure(
    connections: u32,
    step: &MachineStep<'_>,
    result: &mut Measurement,
) -> Result<(), Failure> {
    if let Some(most) = number(MAXIMUM).filter(|most| u64::from(connections) > *most) {
        let reason = format!("{NOT_RUN}nf_conntrack_max is {most}, and the lab does not change it");
        return Err(Failure::Workload(reason));
    }
    let made = tempfile::Builder::new().prefix("conntrack-").tempdir_in(step.programs);
    let folder = made.map_err(|error| Failure::io("making a folder for the profile", &error))?;
    let (near, far) = (Namespace::create("generator")?, Namespace::create("router")?);
    lay(&near, &far)?;
    // Without steering, the kernel would forward the packets in the generator's own CPU time.
    let last: Vec<usize> = host::online_cpus().into_iter().next_back().into_iter().collect();
    if let Err(error) = host::steer_receiving(&far, "dev0", &last) {
        result.warnings.push(format!("the generator shares its CPU with the router: {error}"));
    }
    let table = Started::new(&far, words(&["/usr/sbin/nft", TABLE]), &[], step)?;
    finish(table, Duration::from_secs(10), step)?;
    let hardware = far.run(|| Ok(hardware_address("dev0")))?;
    let hardware = hardware.ok_or_else(|| Failure::Workload("dev0 has no address".to_owned()))?;
    let profile = folder.path().join("profile.yaml");
    std::fs::write(&profile, profile_text(connections, OFFERED))
        .map_err(|error| Failure::io("writing the profile", &error))?;
    let count = || {
        let count = far.run(|| Ok(number(COUNT)))?;
        count.ok_or_else(|| Failure::Workload(format!("the kernel has no {COUNT}")))
    };
    let (first, size) = (count()?, object_size());
    let (profile, weir) = (profile.display().to_string(), step.weir.display().to_string());
    let port = format!("gen0,dest-mac={hardware}");
    let duration = format!("{:.3}", f64::from(connections) / OFFERED);
    let cpus: Vec<usize> = host::online_cpus().into_iter().take(1).collect();
    let argv = words(&[
        &weir, "gen", "-f", &profile, "-d", &duration, "--port", &port, "--port", "gen1", "--json",
    ]);
    let mut generator = Started::new(&near, argv, &cpus, step)?;
    let filling =
        watch(first, u64::from(connections), PATIENCE, || match step.cancel.is_cancelled() {
            true => Err(Failure::Interrupted),
            false => count(),
        })?;
    let ended = generator.wait(PATIENCE.whole)?;
    let filling = filling.map_err(|most| match ended {
        // The generator misses the rate [`OFFERED`] in every run, and reports the miss as a
        // failure. So a failure of the generator counts only if no connection appeared.
        Some(status) if most == 0 && !status.success() => generator.early_end(status),
        _ => {
            Failure::Workload(format!("the kernel stopped at {most} connections of {connections}"))
        }
    })?;
    account(&[filling], result);
    result.record("connections", Some(count()?.saturating_sub(first) as f64));
    result.record("memory_kib_each.server", size.map(|bytes| bytes / 1024.0));
    Ok(())
}

/// Builds two veth pairs, and a router that forwards from the first pair to the second.
fn lay(near: &Namespace, far: &Namespace) -> Result<(), HostError> {
    for side in 0..2_u8 {
        let (own, device) = (format!("gen{side}"), format!("dev{side}"));
        host::connect((near, &own), (far, &device), MTU)?;
        let ip = |last: u8| IpAddr::V4(Ipv4Addr::new(10, 0, side, last));
        host::add_address(far, &device, Address { ip: ip(1), prefix: 24 })?;
        host::add_neighbour(far, &device, ip(2), NEIGHBOUR)?;
        let network = if side == 0 { CLIENTS } else { SERVERS };
        let to = Address { ip: IpAddr::V4(network), prefix: 8 };
        host::add_route(far, Route { to, gateway: ip(2) })?;
    }
    far.run(|| {
        let set = |name: &str, value: &str| {
            host::write_sysctl(&Sysctl { name: name.to_owned(), value: value.to_owned() })
        };
        set("net.ipv4.ip_forward", "1")?;
        ["all", "dev0", "dev1"]
            .iter()
            .try_for_each(|name| set(&format!("net.ipv4.conf.{name}.rp_filter"), "0"))
    })
}

/// Returns the hardware address of an interface of the calling thread's namespace.
fn hardware_address(interface: &str) -> Option<String> {
    let mut all = nix::ifaddrs::getifaddrs().ok()?;
    let octets = all.find_map(|one| {
        let is_it = one.interface_name == interface;
        one.address.filter(|_| is_it)?.as_link_addr()?.addr()
    })?;
    Some(octets.map(|octet| format!("{octet:02x}")).join(":"))
}

/// Returns the size of one tracked connection in the kernel's memory, in bytes.
fn object_size() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/slabinfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("nf_conntrack "))?;
    line.split_whitespace().nth(2)?.parse().ok()
}

fn number(setting: &str) -> Option<u64> {
    host::read_sysctl(setting)?.parse().ok()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

const MAXIMUM: &str = "net.netfilter.nf_conntrack_max";
const COUNT: &str = "net.netfilter.nf_conntrack_count";
const TABLE: &str = "table ip weir { chain track { type filter hook prerouting priority 0; \
     ct state new counter accept; }; }";
/// Offered packets a second: more than packet sockets and a veth pair carry. The generator waits
/// while its port is full.
const OFFERED: f64 = 3e6;
const CLIENTS: Ipv4Addr = Ipv4Addr::new(16, 0, 0, 0);
const SERVERS: Ipv4Addr = Ipv4Addr::new(48, 0, 0, 0);
const NEIGHBOUR: [u8; 6] = [2, 0, 0, 0, 0, 2];
const MTU: u32 = 1500;
