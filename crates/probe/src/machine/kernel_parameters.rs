/// Returns the parameters of a kernel's command line that change measurements, as written there.
///
/// Reports are passed on, and a command line may hold secrets (`systemd.set_credential=…`), so only
/// well-known names are returned. Other parameters, such as `quiet` and `net.ifnames`, change no
/// measurement.
pub(super) fn telling(command_line: &str) -> String {
    // Parameters after `--` are passed to init.
    let words = command_line.split_whitespace().take_while(|word| *word != "--");
    words.filter(|word| is_telling(word)).collect::<Vec<_>>().join(" ")
}

fn is_telling(word: &str) -> bool {
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    // The kernel treats a dash as an underscore (parameqn() of kernel/params.c).
    let name = name.replace('-', "_");
    let is_known =
        NAMES.contains(&name.as_str()) || MODULES.iter().any(|module| name.starts_with(module));
    // A quotation mark begins a value with spaces, which none of these parameters has.
    is_known && value.len() <= LONGEST && !value.contains('"')
}

/// Sorted by purpose: mitigations, CPUs, idle states, clocks, memory, devices, checks.
const NAMES: [&str; 52] = [
    "mitigations",
    "spectre_v2",
    "spectre_v2_user",
    "spec_store_bypass_disable",
    "l1tf",
    "mds",
    "tsx",
    "tsx_async_abort",
    "retbleed",
    "srbds",
    "pti",
    "nopti",
    "nosmt",
    "maxcpus",
    "nr_cpus",
    "isolcpus",
    "nohz",
    "nohz_full",
    "rcu_nocbs",
    "rcu_nocb_poll",
    "irqaffinity",
    "threadirqs",
    "preempt",
    "skew_tick",
    "numa",
    "numa_balancing",
    "idle",
    "intel_pstate",
    "amd_pstate",
    "tsc",
    "clocksource",
    "hpet",
    "highres",
    "mem",
    "transparent_hugepage",
    "hugepages",
    "hugepagesz",
    "default_hugepagesz",
    "swiotlb",
    "iommu",
    "intel_iommu",
    "amd_iommu",
    "pcie_aspm",
    "pci",
    "cgroup_disable",
    "psi",
    "nowatchdog",
    "nmi_watchdog",
    "audit",
    "init_on_alloc",
    "init_on_free",
    "slub_debug",
];
const MODULES: [&str; 6] =
    ["cpufreq.", "cpuidle.", "intel_idle.", "processor.", "iommu.", "rcutree."];
const LONGEST: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_well_known_kernel_parameters_are_returned() {
        let line = "BOOT_IMAGE=/boot/vmlinuz root=UUID=1234 quiet isolcpus=2-3 foo.password=hunter2 \
                    rcu-nocbs=2 processor.max_cstate=1 nosmt systemd.set_credential=key:hunter2 \
                    ip=10.0.0.1 mem=\"hunter2 x\" -- nohz=hunter2";
        assert_eq!(telling(line), "isolcpus=2-3 rcu-nocbs=2 processor.max_cstate=1 nosmt");
        assert_eq!(telling("quiet token=hunter2"), "");
    }
}
