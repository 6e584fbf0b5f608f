//! The abilities of the running kernel, checked before anything is changed.

use crate::open::Reach;
use crate::types::{Kind, Types};
use crate::{AccelError, Policy};
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interface {
    /// Whether `cong_control` also receives the acknowledgement number and the flags (Linux 6.10).
    pub four_arguments: bool,
    /// Whether the algorithm sizes whole trains of segments (`tso_segs(sk, mss)`, kernels with
    /// Google's patches for BBRv3), and not only the smallest train (`min_tso_segs(sk)`).
    pub whole_trains: bool,
    /// Whether a transmission after an idle period has a separate callback (`cwnd_event_tx_start`,
    /// Linux 7.1), and is no longer an event of `cwnd_event`.
    pub tx_start: bool,
    /// Whether the algorithm is a link, which can be pinned and updated (Linux 6.4).
    pub links: bool,
    /// Whether programs can iterate over open connections and change the connections (Linux 5.15).
    pub open_connections: bool,
    /// Whether a socket's maximum retransmission timeout can be set (Linux 6.15).
    pub rto_max: bool,
    /// Whether programs at interfaces are links as well (Linux 6.6).
    pub interface_links: bool,
    /// Whether loss detection by RACK can be switched off (before Linux 6.17).
    pub rack_is_optional: bool,
}

/// Detects the interface of the running kernel; an error if the kernel cannot load the programs.
pub fn interface() -> Result<Interface, AccelError> {
    interface_of(Path::new(VMLINUX))
}

/// Detects the interface as [`interface`] does, with the description of the kernel's types at
/// another path.
pub fn interface_of(types: &Path) -> Result<Interface, AccelError> {
    let types = Types::read(types).ok_or(AccelError::NotSupported {
        feature: "description of its types (BTF)",
        doing: DOING,
        advice: "use a kernel built with CONFIG_DEBUG_INFO_BTF, as those of Debian 12, Ubuntu \
                 22.04 and later are",
    })?;
    let too_old = || AccelError::NotSupported {
        feature: "congestion control in BPF (struct_ops for TCP)",
        doing: DOING,
        advice: "it is complete since Linux 6.1; check CONFIG_BPF_JIT and CONFIG_CGROUP_BPF too",
    };
    let [congestion, registered, cgroup, ops, iterator, connection, tcx, tcp] = types.named([
        (Kind::Struct, "tcp_congestion_ops"),
        (Kind::Struct, "bpf_struct_ops_tcp_congestion_ops"),
        (Kind::Struct, "cgroup"),
        (Kind::Struct, "bpf_struct_ops"),
        (Kind::Struct, "bpf_iter__tcp"),
        (Kind::Struct, "inet_connection_sock"),
        (Kind::Struct, "tcx_link"),
        (Kind::Struct, "tcp_sock"),
    ]);
    let arguments = |callback: &str| congestion?.arguments(Some(callback));
    let of_control = arguments("cong_control").ok_or_else(too_old)?;
    let whole_trains = arguments("tso_segs") == Some(2);
    let tx_start = arguments("cwnd_event_tx_start") == Some(1);
    // The kernel has this type only if BPF programs may implement congestion control.
    registered.ok_or_else(too_old)?;
    // The kernel has these fields to identify a connection's control groups (Linux 6.1).
    if !cgroup.is_some_and(|cgroup| cgroup.has("ancestors")) {
        return Err(too_old());
    }
    let links = ops.is_some_and(|ops| ops.has("update"));
    let open_connections = iterator.is_some();
    let rto_max = connection.is_some_and(|sock| sock.has("icsk_rto_max"));
    let interface_links = tcx.is_some();
    // Only loss detection without RACK used this field, so newer kernels lack it
    // (include/linux/tcp.h).
    let rack_is_optional = tcp.is_some_and(|sock| sock.has("lost_skb_hint"));
    Ok(Interface {
        four_arguments: of_control == 4,
        whole_trains,
        tx_start,
        links,
        open_connections,
        rto_max,
        interface_links,
        rack_is_optional,
    })
}

impl Interface {
    /// Checks that the kernel supports the request.
    pub(crate) fn check(self, policy: &Policy, reach: Reach) -> Result<(), AccelError> {
        let bounds =
            policy.rules.iter().filter_map(|rule| rule.tunables).any(|t| t.rto_max.is_some());
        if bounds && !self.rto_max {
            return Err(AccelError::NotSupported {
                feature: "bound of a socket's retransmission timeout (TCP_RTO_MAX_MS)",
                doing: "rto_max",
                advice: "it came with Linux 6.15; leave rto_max out",
            });
        }
        if policy.system.switches.get("rack") == Some(&0) && !self.rack_is_optional {
            return Err(AccelError::NotSupported {
                feature: "loss detection other than RACK",
                doing: "rack=off",
                advice: "Linux 6.17 and later always use RACK; leave rack out",
            });
        }
        self.check_reach(reach)
    }

    pub(crate) fn check_caqm(self) -> Result<(), AccelError> {
        if self.links && self.open_connections && self.interface_links {
            return Ok(());
        }
        Err(AccelError::NotSupported {
            feature: "programs at interfaces as links (TCX)",
            doing: "caqm",
            advice: "it came with Linux 6.6; check CONFIG_NET_XGRESS too",
        })
    }

    pub(crate) fn check_reach(self, reach: Reach) -> Result<(), AccelError> {
        if self.open_connections || reach == Reach::New {
            return Ok(());
        }
        Err(AccelError::NotSupported {
            feature: "iterator over TCP connections (iter/tcp)",
            doing: "changing open connections",
            advice: "check CONFIG_BPF_SYSCALL and CONFIG_PROC_FS; without --open new connections are served",
        })
    }
}

pub(crate) const VMLINUX: &str = "/sys/kernel/btf/vmlinux";
const DOING: &str = "weir accel";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_btf_is_reported() {
        let error = interface_of(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(error.contains("CONFIG_DEBUG_INFO_BTF"), "{error}");
    }

    #[test]
    fn the_interface_of_this_kernel_is_detected() {
        match interface() {
            Ok(found) => println!("{found:?}"),
            Err(error @ AccelError::NotSupported { .. }) => {
                testing::skip_because(testing::Need::StructOps, error);
            }
            Err(error) => panic!("{error}"),
        }
    }
}
