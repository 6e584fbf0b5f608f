//! The facts about this machine that a report needs to make its numbers meaningful.

mod kernel_parameters;
mod program;
mod sysctl;

use std::collections::BTreeMap;

use serde::Serialize;
use units::Bytes;

use crate::ProbeError;
use crate::cpu::{self, CpuSnapshot};
use crate::error::read_text;

pub use program::program_text;
pub use sysctl::{SYSCTLS, sysctl, sysctls};

/// Properties of a machine. A property that the machine does not provide is `None` or empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Machine {
    pub kernel_release: String,
    pub kernel_version: String,
    pub architecture: String,
    /// The parameters on the kernel's command line that change measurements.
    pub kernel_parameters: Option<String>,
    pub cpu_model: Option<String>,
    pub cores_online: Vec<usize>,
    /// The cores the calling thread may use.
    pub cores_usable: Vec<usize>,
    pub memory: Bytes,
    /// Whether the processor reports that it is virtual (x86 only; elsewhere `None`).
    pub virtual_machine: Option<bool>,
    /// Manufacturer and model from the firmware.
    pub product: Option<String>,
    pub clocksource: Option<String>,
    /// `None` if this system does not control the processor's frequency.
    pub frequency_governor: Option<String>,
    pub boot_id: String,
    /// Mitigations by vulnerability, without vulnerabilities that do not affect this processor.
    pub mitigations: BTreeMap<String, String>,
    /// Settings in the calling thread's network namespace.
    pub sysctls: BTreeMap<String, String>,
}

impl Machine {
    pub fn read() -> Result<Self, ProbeError> {
        let kernel = rustix::system::uname();
        let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let processor = Processor::parse(&read_text("/proc/cpuinfo")?);
        Ok(Self {
            kernel_release: text(kernel.release()),
            kernel_version: text(kernel.version()),
            architecture: text(kernel.machine()),
            kernel_parameters: fact("/proc/cmdline")
                .map(|line| kernel_parameters::telling(&line))
                .filter(|told| !told.is_empty()),
            cpu_model: processor.model,
            cores_online: CpuSnapshot::read()?.online().collect(),
            cores_usable: cpu::affinity()?,
            memory: parse_memory(&read_text("/proc/meminfo")?)?,
            virtual_machine: processor.virtual_machine,
            product: product(),
            clocksource: fact("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            frequency_governor: fact("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            boot_id: fact("/proc/sys/kernel/random/boot_id").unwrap_or_default(),
            mitigations: mitigations(),
            sysctls: sysctls().into_iter().collect(),
        })
    }
}

#[derive(Debug, PartialEq, Eq, Default)]
struct Processor {
    model: Option<String>,
    virtual_machine: Option<bool>,
}

impl Processor {
    fn parse(text: &str) -> Self {
        let value = |name: &str| {
            text.lines()
                .filter_map(|line| line.split_once(':'))
                .find(|(key, _)| key.trim() == name)
                .map(|(_, value)| value.trim().to_owned())
        };
        Self {
            // The keys of x86 and s390, then ARM's board and POWER's name.
            model: ["model name", "Model", "cpu"].into_iter().find_map(value),
            virtual_machine: value("flags")
                .map(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
        }
    }
}

fn parse_memory(text: &str) -> Result<Bytes, ProbeError> {
    text.lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"))
        .and_then(|count| count.parse().ok())
        .map(Bytes::kib)
        .ok_or_else(|| ProbeError::malformed("/proc/meminfo", "no line \"MemTotal\""))
}

fn product() -> Option<String> {
    let parts = ["sys_vendor", "product_name"];
    let parts: Vec<_> =
        parts.iter().filter_map(|part| fact(&format!("/sys/class/dmi/id/{part}"))).collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}

fn mitigations() -> BTreeMap<String, String> {
    let directory = std::fs::read_dir("/sys/devices/system/cpu/vulnerabilities");
    directory
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let state = fact(entry.path().to_str()?)?;
            let name = entry.file_name().into_string().ok()?;
            (state != "Not affected").then_some((name, state))
        })
        .collect()
}

/// Reads a file of one line. A missing file is not an error.
fn fact(path: &str) -> Option<String> {
    let text = read_text(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_cpu_model_is_found_on_several_architectures() {
        let x86 = "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu hypervisor sse\n";
        let x86 = Processor::parse(x86);
        assert_eq!(x86.model.as_deref(), Some("AMD EPYC"));
        assert_eq!(x86.virtual_machine, Some(true));
        let metal = Processor::parse("model name: x\nflags: fpu sse\n");
        assert_eq!(metal.virtual_machine, Some(false));
        let arm = Processor::parse("processor : 0\nFeatures : fp\nModel : Raspberry Pi 5\n");
        assert_eq!(arm.model.as_deref(), Some("Raspberry Pi 5"));
        assert_eq!(arm.virtual_machine, None);
    }

    #[test]
    fn the_memory_size_in_meminfo_is_parsed() {
        let text = "MemFree: 1 kB\nMemTotal:       24689820 kB\n";
        assert_eq!(parse_memory(text).unwrap(), Bytes::kib(24_689_820));
        assert!(parse_memory("MemTotal: lots\n").is_err());
    }

    #[test]
    fn the_facts_of_this_machine_are_read() {
        let machine = Machine::read().unwrap();
        assert!(!machine.kernel_release.is_empty() && !machine.boot_id.is_empty());
        assert!(machine.memory > Bytes::ZERO && !machine.cores_online.is_empty());
        assert!(machine.sysctls.contains_key("net.ipv4.tcp_congestion_control"));
    }

    proptest! {
        #[test]
        fn the_parsers_of_cpu_and_memory_never_panic(text in "([A-Za-z ]{0,9}:?.{0,20}\n){0,4}") {
            let _ = Processor::parse(&text);
            let _ = parse_memory(&text);
        }
    }
}
