//! The systemd unit that applies a policy at boot.

use accel::PolicyFile;
use accel::caqm::InterfaceName;
use std::path::Path;

/// Builds the unit. The unit starts before any listener, because a connection gets its algorithm
/// when it is established. The unit waits for the interfaces that the policy names.
pub(super) fn unit(policy: &Path) -> anyhow::Result<String> {
    let weir = std::env::current_exe()?;
    let devices: String = match PolicyFile::read(policy) {
        Ok(PolicyFile { caqm: Some(caqm), .. }) => {
            caqm.interfaces.iter().filter_map(device).collect()
        }
        _ => String::new(),
    };
    let policy = std::path::absolute(policy)?;
    let is_at_home = [&weir, &policy].iter().any(|path| HOMES.iter().any(|h| path.starts_with(h)));
    let homes = if is_at_home { "read-only" } else { "yes" };
    let (weir, policy) = (weir.display(), policy.display());
    Ok(format!(
        "[Unit]\n\
         Description=TCP acceleration (weir accel)\n\
         RequiresMountsFor=/sys/fs/bpf\n\
         ConditionPathExists={policy}\n\
         Before=network.target\n{devices}\n\
         [Service]\n\
         Type=oneshot\n\
         RemainAfterExit=yes\n\
         ExecStart={weir} accel policy {policy}\n\
         ExecReload={weir} accel policy {policy}\n\
         ExecStop={weir} accel disable\n\
         {CONFINEMENT}\
         ProtectHome={homes}\n\n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    ))
}

/// Returns systemd's name for an interface's unit (systemd.unit(5), "String escaping for inclusion
/// in unit names").
fn device(interface: &InterfaceName) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '.');
    let escaped = |c: char| match plain(c) {
        true => c.to_string(),
        false => format!("\\x{:02x}", u32::from(c)),
    };
    if interface.namespace.is_some() {
        return None;
    }
    let name: String = interface.interface.chars().map(escaped).collect();
    let unit = format!("sys-subsystem-net-devices-{name}.device");
    Some(format!("Wants={unit}\nAfter={unit}\n"))
}

/// The unit's settings that confine the command. The kernel accepts accel's BPF programs only from
/// root, so the command stays root and keeps three capabilities. CAP_SYS_ADMIN and CAP_NET_ADMIN
/// load and attach the programs, open BPF objects by their number and enter other network
/// namespaces; CAP_SYS_ADMIN includes CAP_BPF and CAP_PERFMON. CAP_SYS_PTRACE finds the network
/// namespaces of other processes: ProtectProc=invisible hides no process from root's group. A
/// socket of AF_INET makes the kernel load the module of a congestion control. The command writes
/// pins, its lock and journal in /run, and settings of the network, and sends nothing.
/// ProtectKernelTunables= would make the pins' file system read-only in spite of ReadWritePaths=,
/// so the unit itself lists the protected paths.
const CONFINEMENT: &str = "\
CapabilityBoundingSet=CAP_NET_ADMIN CAP_SYS_ADMIN CAP_SYS_PTRACE
NoNewPrivileges=yes
UMask=0077
ProtectSystem=strict
ReadOnlyPaths=/sys /proc/sys
ReadWritePaths=/sys/fs/bpf /run /proc/sys/net
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectProc=invisible
PrivateTmp=yes
PrivateDevices=yes
PrivateMounts=yes
DevicePolicy=closed
IPAddressDeny=any
KeyringMode=private
LockPersonality=yes
MemoryDenyWriteExecute=yes
RestrictAddressFamilies=AF_INET AF_NETLINK
RestrictNamespaces=net
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallFilter=bpf setns
SystemCallErrorNumber=EPERM
";
/// Directories that ProtectHome= makes empty for the service: a program or a policy in a home
/// directory would be missing.
const HOMES: [&str; 3] = ["/home", "/root", "/run/user"];

pub(super) const EXAMPLE: &str = "\
Example:
  weir accel unit /etc/weir/accel.toml > /etc/systemd/system/weir-accel.service
  systemctl daemon-reload && systemctl enable --now weir-accel

The unit confines the command: it keeps the capabilities for BPF, and writes only its pins, /run and
settings of the network.";
