//! The systemd unit of a tunnel.

use crate::support::{Sandbox, is_installed};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn the_unit_loads_the_key_as_a_credential_and_confines_the_service() {
    let Some(sandbox) = Sandbox::new() else { return };
    let file = sandbox.home().join("tunnel.toml");
    std::fs::write(&file, "[server]\nkey-file = \"keys/own.key\"\nmemory = \"64MiB\"\n").unwrap();
    let output = sandbox.weir(&["tunnel", "unit", "server", file.to_str().unwrap()]);
    assert!(output.status.success(), "{}", output.stderr);
    let home = sandbox.home().display().to_string();
    for line in [
        format!("LoadCredential=key:{home}/keys/own.key"),
        format!(
            "ExecReload=+{} tunnel reload --status-socket /run/weir-tunnel-server/status.sock \
             --key-file {home}/keys/own.key",
            env!("CARGO_BIN_EXE_weir")
        ),
        format!(
            "ExecReload={} tunnel upgrade --status-socket /run/weir-tunnel-server/status.sock \
             --if-changed",
            env!("CARGO_BIN_EXE_weir")
        ),
        "NotifyAccess=all".to_owned(),
        "    --cert-file /etc/weir/tunnel/server.crt --key-file %d/key --status-socket \
         /run/weir-tunnel-server/status.sock"
            .to_owned(),
        format!("MemoryMax={}", (1_u64 << 30) + (128 << 20)),
        "WatchdogSec=30".to_owned(),
        "RestartSec=100ms".to_owned(),
        "DynamicUser=yes".to_owned(),
    ] {
        assert!(output.stdout.lines().any(|one| one == line), "{line}\n{}", output.stdout);
    }
    if !is_installed("systemd-analyze") {
        return testing::skip(testing::Need::Program("systemd-analyze"));
    }
    let unit = sandbox.home().join("weir-tunnel-server.service");
    std::fs::write(&unit, &output.stdout).unwrap();
    let judged = Command::new("systemd-analyze")
        .args(["security", "--offline=true", unit.to_str().unwrap()])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&judged.stdout).into_owned();
    let exposure = text.lines().find_map(|line| line.split("Overall exposure level for ").nth(1));
    let Some(exposure) = exposure else {
        return testing::skip_because(testing::Need::UnitAnalysis, text);
    };
    let level: f64 = exposure.split(' ').nth(1).unwrap().parse().unwrap();
    eprintln!("{exposure}");
    assert!(level <= 2.0, "{text}");
    assert!(!String::from_utf8_lossy(&judged.stderr).contains("ignoring"), "{judged:?}");
}

/// The service runs as a separate user, who reads the certificate; systemd passes the key.
#[test]
fn the_services_user_can_read_the_files_of_tunnel_keys_except_the_key() {
    let Some(sandbox) = Sandbox::new() else { return };
    let made = sandbox.weir(&["tunnel", "keys", "server", "--directory", "weir/tunnel"]);
    assert!(made.status.success(), "{made:?}");
    let mode = |path: &str| {
        let found = std::fs::metadata(sandbox.home().join(path)).unwrap();
        found.permissions().mode() & 0o777
    };
    assert_eq!([mode("weir"), mode("weir/tunnel")], [0o755, 0o755]);
    assert_eq!([mode("weir/tunnel/server.crt"), mode("weir/tunnel/server.key")], [0o644, 0o600]);
}

/// The package has the same settings for its own paths.
#[test]
fn the_packaged_units_equal_the_printed_units() {
    let Some(sandbox) = Sandbox::new() else { return };
    for role in ["server", "client"] {
        let file = sandbox.home().join("tunnel.toml");
        std::fs::write(&file, format!("[{role}]\n")).unwrap();
        let output = sandbox.weir(&["tunnel", "unit", role, file.to_str().unwrap()]);
        assert!(output.status.success(), "{output:?}");
        let printed = output
            .stdout
            .replace(env!("CARGO_BIN_EXE_weir"), "/usr/bin/weir")
            .replace(file.to_str().unwrap(), "/etc/weir/tunnel.toml");
        let path =
            format!("{}/../../packaging/weir-tunnel-{role}.service", env!("CARGO_MANIFEST_DIR"));
        let packaged = std::fs::read_to_string(path).unwrap();
        let without = packaged.lines().filter(|line| !line.starts_with("Documentation="));
        assert_eq!(without.collect::<Vec<_>>(), printed.lines().collect::<Vec<_>>());
    }
}

#[test]
fn a_unit_for_a_file_that_cannot_be_read_is_refused() {
    let Some(sandbox) = Sandbox::new() else { return };
    let output = sandbox.weir(&["tunnel", "unit", "client", "/nowhere/tunnel.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        output.stderr.contains("/nowhere/tunnel.toml") && output.stdout.is_empty(),
        "{output:?}"
    );
}
