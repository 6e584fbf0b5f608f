//! The device behind a network interface, and the steering of its queues: `/sys/class/net` and
//! `/proc/irq`.

use std::collections::BTreeMap;

use crate::tree::Tree;

/// Properties of a device. A property that sysfs does not show is `None` or empty. sysfs shows the
/// interfaces of the namespace in which it was mounted.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Device {
    /// Whether a device of the machine or of its hypervisor is behind the interface.
    pub is_there: bool,
    pub driver: Option<String>,
    pub speed_mbit: Option<u64>,
    pub full_duplex: Option<bool>,
    pub carrier_changes: Option<u64>,
    pub bus: Option<PciBus>,
    /// The queues by name, such as `rx-0` and `tx-0`.
    pub queues: BTreeMap<String, QueueCores>,
    pub interrupts: Vec<Interrupt>,
}

/// The device's PCI Express link: transfers per second (10⁹) and lanes, now and at most.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PciBus {
    pub speed: Option<f64>,
    pub speed_most: Option<f64>,
    pub width: Option<u32>,
    pub width_most: Option<u32>,
}

/// Cores to which the kernel steers a queue's packets (RPS, XPS); none means no steering.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueCores {
    pub cores: Vec<usize>,
    /// The number of flows that RFS remembers for the queue (`rps_flow_cnt`).
    pub flows: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interrupt {
    pub number: u32,
    pub name: String,
    /// The cores that may handle the interrupt.
    pub cores: Vec<usize>,
}

impl Device {
    pub fn read(tree: &Tree, interface: &str) -> Self {
        // An interface's name from the kernel has no slash. A name from a recorded file may have a
        // slash.
        if interface.contains('/') || interface.starts_with('.') {
            return Self::default();
        }
        let directory = format!("/sys/class/net/{interface}");
        let device = format!("{directory}/device");
        let name = |path: std::path::PathBuf| Some(path.file_name()?.to_str()?.to_owned());
        Self {
            is_there: tree.has(&device),
            driver: tree
                .link(&format!("{device}/driver"))
                .or_else(|| tree.link(&format!("{device}/../driver")))
                .and_then(name),
            speed_mbit: tree.number(&format!("{directory}/speed")).filter(|speed| *speed > 0),
            full_duplex: match tree.line(&format!("{directory}/duplex")).as_deref() {
                Some("full") => Some(true),
                Some("half") => Some(false),
                _ => None,
            },
            carrier_changes: tree.number(&format!("{directory}/carrier_changes")),
            bus: bus(tree, &device),
            queues: queues(tree, &directory),
            interrupts: interrupts(tree, interface, &device),
        }
    }
}

fn bus(tree: &Tree, device: &str) -> Option<PciBus> {
    // Parses a line such as "8.0 GT/s PCIe".
    let speed = |name: &str| {
        let line = tree.line(&format!("{device}/{name}"))?;
        line.split(' ').next()?.parse::<f64>().ok().filter(|speed| *speed > 0.0)
    };
    let width = |name: &str| {
        let number = tree.number(&format!("{device}/{name}"))?;
        u32::try_from(number).ok().filter(|width| *width > 0 && *width <= 32)
    };
    let bus = PciBus {
        speed: speed("current_link_speed"),
        speed_most: speed("max_link_speed"),
        width: width("current_link_width"),
        width_most: width("max_link_width"),
    };
    (bus != PciBus::default()).then_some(bus)
}

fn queues(tree: &Tree, directory: &str) -> BTreeMap<String, QueueCores> {
    let names = tree.names(&format!("{directory}/queues")).unwrap_or_default();
    let queues = names.into_iter().take(MOST_QUEUES).map(|name| {
        let queue = format!("{directory}/queues/{name}");
        let mask = if name.starts_with("rx-") { "rps_cpus" } else { "xps_cpus" };
        let cores = tree.line(&format!("{queue}/{mask}")).map(|mask| cores_of_mask(&mask));
        let flows = tree.number(&format!("{queue}/rps_flow_cnt"));
        (name, QueueCores { cores: cores.unwrap_or_default(), flows })
    });
    queues.collect()
}

/// Returns the interrupts whose line in `/proc/interrupts` names the interface or, as for virtio,
/// its device.
fn interrupts(tree: &Tree, interface: &str, device: &str) -> Vec<Interrupt> {
    let listed = tree.names(&format!("{device}/msi_irqs"));
    let listed = listed.or_else(|_| tree.names(&format!("{device}/../msi_irqs")));
    let listed: Vec<u32> =
        listed.unwrap_or_default().iter().filter_map(|name| name.parse().ok()).collect();
    let text = tree.text("/proc/interrupts").unwrap_or_default();
    let lines = text.lines().skip(1).filter_map(|line| {
        let (number, rest) = line.split_once(':')?;
        let number: u32 = number.trim().parse().ok()?;
        let name = rest.split_ascii_whitespace().last()?;
        let named = name == interface
            || name.strip_prefix(interface).is_some_and(|rest| rest.starts_with(['-', '.', '@']))
            || name.split(['-', '@']).any(|part| part == interface);
        // The interrupt for configuration changes carries no packets.
        (named || listed.contains(&number) && !name.ends_with("-config")).then(|| Interrupt {
            number,
            name: name.to_owned(),
            cores: tree
                .line(&format!("/proc/irq/{number}/effective_affinity_list"))
                .or_else(|| tree.line(&format!("/proc/irq/{number}/smp_affinity_list")))
                .map(|list| cores_of_list(&list))
                .unwrap_or_default(),
        })
    });
    lines.take(MOST_QUEUES).collect()
}

/// Parses a mask such as `00000001,000000ff`: groups of 32 bits, the highest first.
pub fn cores_of_mask(mask: &str) -> Vec<usize> {
    let groups: Vec<_> = mask.trim().split(',').collect();
    let mut cores = Vec::new();
    for (at, group) in groups.iter().rev().enumerate().take(MOST_GROUPS) {
        let Ok(bits) = u32::from_str_radix(group.trim(), 16) else { return Vec::new() };
        cores.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| at * 32 + bit));
    }
    cores
}

/// Parses a list such as `0-3,8`.
pub fn cores_of_list(list: &str) -> Vec<usize> {
    let mut cores = Vec::new();
    for part in list.trim().split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (Ok(from), Ok(to)) = (from.trim().parse::<usize>(), to.trim().parse::<usize>()) else {
            continue;
        };
        cores.extend((from..=to).take(MOST_GROUPS * 32));
    }
    cores.truncate(MOST_GROUPS * 32);
    cores
}

const MOST_QUEUES: usize = 1024;
/// Maximum number of groups of 32 cores: 8,192 cores, the largest NR_CPUS.
const MOST_GROUPS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cpu_masks_and_lists_are_parsed() {
        assert_eq!(cores_of_mask("3"), [0, 1]);
        assert_eq!(cores_of_mask("00000001,80000000"), [31, 32]);
        assert_eq!(cores_of_mask("0"), Vec::<usize>::new());
        assert_eq!(cores_of_mask("x,1"), Vec::<usize>::new());
        assert_eq!(cores_of_list("0-2,8"), [0, 1, 2, 8]);
        assert_eq!(cores_of_list("\n"), Vec::<usize>::new());
        assert_eq!(cores_of_list("0-18446744073709551615").len(), 8192);
    }

    #[test]
    fn the_loopback_interface_has_queues_and_no_device() {
        let device = Device::read(&Tree::here(), "lo");
        assert!(!device.is_there && device.driver.is_none());
        assert_eq!(Device::read(&Tree::here(), "../../x"), Device::default());
        assert_eq!(Device::read(&Tree::at("/nowhere"), "eth0"), Device::default());
    }

    proptest! {
        #[test]
        fn the_parsers_of_masks_and_lists_never_panic(text in "[0-9a-fx,-]{0,60}") {
            let _ = (cores_of_mask(&text), cores_of_list(&text));
        }
    }
}
