//! The labs that come with the program.

/// A lab built into the program. The file of the lab is in `labs/`.
#[derive(Debug, Clone, Copy)]
pub struct Builtin {
    pub name: &'static str,
    pub text: &'static str,
}

pub const BUILTIN: &[Builtin] = &[
    Builtin { name: "quic-tun", text: include_str!("../../../../labs/quic-tun.toml") },
    Builtin { name: "tunnel-latency", text: include_str!("../../../../labs/tunnel-latency.toml") },
    Builtin { name: "tunnel-scale", text: include_str!("../../../../labs/tunnel-scale.toml") },
    Builtin { name: "rough-paths", text: include_str!("../../../../labs/rough-paths.toml") },
    Builtin { name: "tunnel-paths", text: include_str!("../../../../labs/tunnel-paths.toml") },
    Builtin { name: "tunnel-peers", text: TUNNEL_PEERS },
    Builtin { name: "link-accuracy", text: include_str!("../../../../labs/link-accuracy.toml") },
    Builtin { name: "lateness", text: include_str!("../../../../labs/lateness.toml") },
    Builtin { name: "lateness-bound", text: include_str!("../../../../labs/lateness-bound.toml") },
    Builtin { name: "perf-overhead", text: include_str!("../../../../labs/perf-overhead.toml") },
    Builtin { name: "cc-grid", text: include_str!("../../../../labs/cc-grid.toml") },
    Builtin { name: "caqm-fabric", text: include_str!("../../../../labs/caqm-fabric.toml") },
    Builtin { name: "incast", text: include_str!("../../../../labs/incast.toml") },
    Builtin { name: "validate", text: include_str!("../../../../labs/validate.toml") },
    Builtin { name: "kernel-cells", text: include_str!("../../../../labs/kernel-cells.toml") },
    Builtin { name: "tcpa", text: include_str!("../../../../labs/tcpa.toml") },
    Builtin { name: "tcpa-paths", text: include_str!("../../../../labs/tcpa-paths.toml") },
    Builtin { name: "tcpa-hard", text: include_str!("../../../../labs/tcpa-hard.toml") },
    Builtin { name: "hard-paths", text: include_str!("../../../../labs/hard-paths.toml") },
    Builtin { name: "faults", text: include_str!("../../../../labs/faults.toml") },
    Builtin { name: "senders", text: include_str!("../../../../labs/senders.toml") },
    Builtin { name: "drawn-faults", text: include_str!("../../../../labs/drawn-faults.toml") },
    Builtin { name: "captures", text: include_str!("../../../../labs/captures.toml") },
    Builtin { name: "live-flows", text: include_str!("../../../../labs/live-flows.toml") },
    Builtin { name: "slow-nic", text: include_str!("../../../../labs/slow-nic.toml") },
    Builtin { name: "flow-rules", text: include_str!("../../../../labs/flow-rules.toml") },
    Builtin { name: "conntrack", text: include_str!("../../../../labs/conntrack.toml") },
    Builtin { name: "accel-cost", text: include_str!("../../../../labs/accel-cost.toml") },
    Builtin { name: "before-after", text: include_str!("../../../../labs/before-after.toml") },
    Builtin { name: "caqm", text: include_str!("../../../../labs/caqm.toml") },
    Builtin { name: "caqm-hosts", text: include_str!("../../../../labs/caqm-hosts.toml") },
    Builtin { name: "robustness", text: include_str!("../../../../labs/robustness.toml") },
    Builtin { name: "cc-kernel", text: include_str!("../../../../labs/cc-kernel.toml") },
];

/// The lab with a system for each file of labs/peers.
const TUNNEL_PEERS: &str = concat!(
    include_str!("../../../../labs/tunnel-peers.toml"),
    include_str!("../../../../labs/peers/hysteria.toml"),
    include_str!("../../../../labs/peers/quic-tun.toml"),
    include_str!("../../../../labs/peers/frp.toml"),
    include_str!("../../../../labs/peers/chisel.toml"),
    include_str!("../../../../labs/peers/rathole.toml"),
    include_str!("../../../../labs/peers/wireguard.toml"),
    include_str!("../../../../labs/peers/ssh.toml"),
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lab_of_peers_has_each_file_of_labs_peers() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../labs/peers");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            assert!(TUNNEL_PEERS.contains(&text), "{name}: add it to TUNNEL_PEERS");
            // scripts/peers reads the lines that begin with `# programs: `.
            assert!(text.contains("\n# programs: "), "{name}");
            assert!(text.contains("\n# build: ") || text.contains("\n# otherwise: "), "{name}");
            assert!(text.contains(&format!("\nname = \"{name}\"\n")), "{name}");
            assert!(text.contains("\noptional = true\n"), "{name}");
        }
    }
}
