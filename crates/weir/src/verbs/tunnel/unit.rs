use crate::exit::Ending;
use crate::output::print;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct Unit {
    /// Which end this is
    role: Role,
    /// The file it is started with
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
    print(unit(role, &arguments.config)?)?;
    Ok(Ending::Fine)
}

/// It may open sockets and read its file and keys, and little else. A socket of its own for status: one that
/// bears a process number would be another one after each start.
fn unit(role: &str, config: &Path) -> anyhow::Result<String> {
    let weir = std::env::current_exe()?;
    let (weir, config) = (weir.display(), std::path::absolute(config)?);
    let config = config.display();
    let socket = format!("/run/weir-tunnel-{role}/status.sock");
    Ok(format!(
        "[Unit]\n\
         Description=TCP, UNIX and UDP over QUIC (weir tunnel {role})\n\
         ConditionPathExists={config}\n\
         Wants=network-online.target\n\
         After=network-online.target\n\n\
         [Service]\n\
         ExecStart={weir} tunnel {role} --config {config} --status-socket {socket}\n\
         ExecReload={weir} tunnel reload --status-socket {socket}\n\
         Restart=on-failure\n\
         RestartSec=1\n\
         TimeoutStopSec=15\n\
         LimitNOFILE=65536\n\
         RuntimeDirectory=weir-tunnel-{role}\n\
         RuntimeDirectoryMode=0700\n\
         CapabilityBoundingSet=CAP_NET_BIND_SERVICE CAP_NET_ADMIN CAP_DAC_OVERRIDE\n\
         NoNewPrivileges=yes\n\
         ProtectSystem=full\n\
         ProtectHome=yes\n\
         PrivateTmp=yes\n\
         ProtectKernelTunables=yes\n\
         ProtectKernelModules=yes\n\
         RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK\n\n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    ))
}

pub(super) const EXAMPLES: &str = "\
Examples:
  weir tunnel unit server /etc/weir/tunnel.toml > /etc/systemd/system/weir-tunnel-server.service
  systemctl daemon-reload && systemctl enable --now weir-tunnel-server
  systemctl reload weir-tunnel-server
  weir tunnel status --status-socket /run/weir-tunnel-server/status.sock";
