use std::io::ErrorKind;

use crate::ProbeError;
use crate::error::read_text;

/// The settings that limit the speed of TCP, UDP and the receive path.
pub const SYSCTLS: &[&str] = &[
    "kernel.sched_rt_runtime_us",
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
    "net.core.dev_weight",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.core.optmem_max",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.rps_sock_flow_entries",
    "net.core.somaxconn",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.ip_forward",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_adv_win_scale",
    "net.ipv4.tcp_allowed_congestion_control",
    "net.ipv4.tcp_autocorking",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_dsack",
    "net.ipv4.tcp_early_retrans",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_fastopen",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_frto",
    "net.ipv4.tcp_limit_output_bytes",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_min_tso_segs",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_pacing_ca_ratio",
    "net.ipv4.tcp_pacing_ss_ratio",
    "net.ipv4.tcp_recovery",
    "net.ipv4.tcp_reordering",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_tso_win_divisor",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
    "net.ipv4.udp_mem",
    "net.ipv4.udp_rmem_min",
];

/// Reads a setting; `net.` settings are those of the calling thread's network namespace. Columns
/// are separated by single blanks.
pub fn sysctl(name: &str) -> Result<String, ProbeError> {
    // As in sysctl(8), a slash in the name stands for a dot within a part (interfaces like eth0.5).
    let path: String = name
        .chars()
        .map(|letter| match letter {
            '.' => '/',
            '/' => '.',
            other => other,
        })
        .collect();
    let missing = || ProbeError::NotFound {
        what: format!("setting {name:?}"),
        hint: "see `sysctl -a`; some are not shown inside a network namespace",
    };
    if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(missing());
    }
    match read_text(format!("/proc/sys/{path}")) {
        Err(ProbeError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => {
            Err(missing())
        }
        text => Ok(text?.split_ascii_whitespace().collect::<Vec<_>>().join(" ")),
    }
}

/// Reads the settings of [`SYSCTLS`] that this kernel has.
pub fn sysctls() -> Vec<(String, String)> {
    SYSCTLS.iter().filter_map(|name| Some(((*name).to_owned(), sysctl(name).ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sysctl_columns_are_separated_by_single_blanks() {
        let rmem = sysctl("net.ipv4.tcp_rmem").unwrap();
        assert_eq!(rmem.split(' ').count(), 3, "{rmem:?}");
    }

    #[test]
    fn sysctl_refuses_names_outside_the_settings() {
        for name in ["net.nosuch", "", "net..core", "///net", "net.//.x", "a.//.//.b"] {
            let error = sysctl(name).unwrap_err();
            assert!(matches!(error, ProbeError::NotFound { .. }), "{name}: {error}");
        }
    }

    #[test]
    fn sysctl_names_are_sorted() {
        assert!(SYSCTLS.is_sorted());
    }
}
