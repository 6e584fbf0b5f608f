use crate::exit::Ending;
use crate::output::{note, print};
use clap::{Args, ValueEnum};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use units::Bytes;

#[derive(Debug, Args)]
pub(crate) struct Unit {
    /// Which end this is
    role: Role,
    /// The end's configuration file
    #[arg(value_name = "FILE")]
    config: PathBuf,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Role {
    Server,
    Client,
}

pub(crate) fn run(arguments: &Unit) -> anyhow::Result<Ending> {
    let role = match arguments.role {
        Role::Server => "server",
        Role::Client => "client",
    };
    let file = tunnel::config::File::read(&arguments.config)?;
    let is_server = role == "server";
    let identity = file.identity_files(is_server);
    let weir = std::env::current_exe()?;
    if is_hidden(&weir) {
        note(format_args!(
            "note: the service has a user of its own, who cannot run {}: install weir to /usr/bin, \
             and print the unit with that program",
            weir.display()
        ));
    }
    print(unit(role, &arguments.config, identity, file.memory(is_server))?)?;
    Ok(Ending::Fine)
}

/// Builds the unit of an end. The service may open sockets and read its file, and little else. The
/// service's user cannot read the private key, so systemd passes the key at the start, and root
/// passes it at a reload. The status socket has a fixed path: a path with a process number would
/// change with each start.
fn unit(
    role: &str,
    config: &Path,
    identity: [PathBuf; 2],
    memory: Bytes,
) -> anyhow::Result<String> {
    let weir = std::env::current_exe()?;
    let (weir, config) = (weir.display(), std::path::absolute(config)?);
    let [certificate, key] = identity.map(std::path::absolute);
    let (config, certificate, key) = (config.display(), certificate?, key?);
    let (certificate, key) = (certificate.display(), key.display());
    // In addition to the memory that peers use, the process holds connections, sockets and threads.
    let most_memory = memory.count() * 2 + (1 << 30);
    let socket = format!("/run/weir-tunnel-{role}/status.sock");
    // The directory for the access log, which only a server writes.
    let logs = match role {
        "server" => "LogsDirectory=weir-tunnel-server\nLogsDirectoryMode=0750\n",
        _ => "",
    };
    Ok(format!(
        "[Unit]\n\
         Description=TCP, UNIX and UDP over QUIC (weir tunnel {role})\n\
         ConditionPathExists={config}\n\
         Wants=network-online.target\n\
         After=network-online.target\n\
         {START_LIMIT}\n\
         [Service]\n\
         Type=notify\n\
         ExecStart={weir} tunnel {role} --config {config} \\\n    \
         --cert-file {certificate} --key-file %d/key --status-socket {socket}\n\
         NotifyAccess=all\n\
         ExecReload=+{weir} tunnel reload --status-socket {socket} --key-file {key}\n\
         ExecReload={weir} tunnel upgrade --status-socket {socket} --if-changed\n\
         LoadCredential=key:{key}\n\
         Restart=on-failure\n\
         RestartSec=100ms\n\
         TimeoutStopSec=15\n\
         WatchdogSec=30\n\
         RuntimeDirectory=weir-tunnel-{role}\n\
         RuntimeDirectoryMode=0700\n\
         {logs}\
         LimitNOFILE=65536\n\
         MemoryMax={most_memory}\n\
         TasksMax=512\n\
         {CONFINEMENT}\n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    ))
}

/// Whether ProtectHome= or the mode of a folder keeps other users from running the program.
fn is_hidden(program: &Path) -> bool {
    let others_may = |path: &Path| match path.metadata() {
        Ok(about) => about.permissions().mode() & 0o001 != 0,
        Err(_) => true,
    };
    ["/home", "/root", "/run/user"].iter().any(|home| program.starts_with(home))
        || !program.ancestors().all(others_may)
}

/// A killed service starts again at once, because the other end's applications wait. A service that
/// cannot start tries again for some seconds, in case an address or a file is still missing.
const START_LIMIT: &str = "\
StartLimitIntervalSec=10
StartLimitBurst=50
";

/// CAP_NET_ADMIN allows receive buffers beyond `net.core.rmem_max`. The service needs Netlink to
/// read the machine's own addresses.
const CONFINEMENT: &str = "\
DynamicUser=yes
CapabilityBoundingSet=CAP_NET_BIND_SERVICE CAP_NET_ADMIN
AmbientCapabilities=CAP_NET_BIND_SERVICE CAP_NET_ADMIN
NoNewPrivileges=yes
UMask=0077
ProtectSystem=strict
ProtectHome=yes
ProtectProc=invisible
ProcSubset=pid
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
PrivateTmp=yes
PrivateDevices=yes
PrivateMounts=yes
DevicePolicy=closed
LockPersonality=yes
MemoryDenyWriteExecute=yes
RemoveIPC=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM
";

pub(super) const EXAMPLES: &str = "\
Examples:
  weir tunnel unit server /etc/weir/tunnel.toml \\
      > /etc/systemd/system/weir-tunnel-server.service
  systemctl daemon-reload && systemctl enable --now weir-tunnel-server
  systemctl reload weir-tunnel-server
  weir tunnel status --status-socket /run/weir-tunnel-server/status.sock";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_in_a_home_or_a_closed_folder_is_hidden_from_the_service() {
        assert!(is_hidden(Path::new("/root/weir/target/release/weir")));
        assert!(!is_hidden(Path::new("/usr/bin/env")));
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("weir");
        std::fs::write(&program, "").unwrap();
        let allow = |path: &Path, mode| {
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        };
        allow(&program, 0o755);
        allow(folder.path(), 0o700);
        assert!(is_hidden(&program));
    }
}
