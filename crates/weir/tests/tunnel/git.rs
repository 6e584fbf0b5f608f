//! git clones a repository by HTTPS through a tunnel, over each carrier.

use crate::ends::Ends;
use crate::support::{Sandbox, await_some, is_installed};
use std::path::Path;
use std::process::Command;

#[test]
fn git_clones_by_https_every_byte_over_each_carrier() {
    for program in ["git", "openssl", "python3"] {
        if !is_installed(program) {
            return testing::skip(testing::Need::Program(program));
        }
    }
    let Some(sandbox) = Sandbox::new() else { return };
    let ends = Ends::new(&sandbox);
    let run = |program: &str, words: &[&str]| {
        let mut command = Command::new(program);
        hide_own_settings(&mut command, sandbox.home());
        command.env("GIT_SSL_CAINFO", sandbox.path("git.crt")).args(words);
        let output = sandbox.start_command(command).end();
        assert!(output.status.success(), "{program} {words:?}: {output:?}");
        output.stdout
    };
    // git cannot compress these bytes much, so almost all of them cross the tunnel.
    let mut seed = 7_u32;
    let noise = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as u8
    });
    let noise: Vec<u8> = noise.take(3 << 20).collect();
    std::fs::create_dir_all(sandbox.path("served/folder")).unwrap();
    sandbox.write("served/folder/noise", &noise);
    sandbox.write("served/text", "a line\r\nwithout an end");
    let served = sandbox.path("served").display().to_string();
    run("git", &["-C", &served, "init", "--quiet"]);
    run("git", &["-C", &served, "-c", "core.autocrlf=false", "add", "."]);
    let author = ["-c", "user.name=weir", "-c", "user.email=weir@example.com"];
    run("git", &[&["-C", &served][..], &author, &["commit", "--quiet", "-m", "one"]].concat());

    let names = "subjectAltName=DNS:localhost,IP:127.0.0.1";
    let kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    let files = ["-keyout", "git.key", "-out", "git.crt", "-subj", "/CN=localhost"];
    run("openssl", &[&["req"][..], &kind, &files, &["-addext", names]].concat());
    sandbox.write("git_server.py", include_str!("git_server.py"));
    let mut command = Command::new("python3");
    command.args(["git_server.py", sandbox.home().to_str().unwrap(), "git.crt", "git.key"]);
    hide_own_settings(&mut command, sandbox.home());
    let git_server = sandbox.start_command(command);
    let port: u16 =
        await_some("the git server's port", || git_server.output_so_far().0.trim().parse().ok());

    let target = format!("tcp:127.0.0.1:{port}");
    let _server = ends.server(&[&target]);
    for (carrier, local) in [("udp", "6000"), ("tcp", "6001")] {
        let forward = format!("tcp:127.0.0.1:{local}={target}");
        let socket = format!("{carrier}.sock");
        let mut words = vec!["tunnel", "client", "--server", "127.0.0.1:7500", "--pin", &ends.pin];
        words.extend(["--carrier", carrier, "--status-socket", &socket, "--forward", &forward]);
        let own = ends.own("client");
        words.extend(own.iter().map(String::as_str));
        let _client = ends.started(&words, "connected to");
        let address = format!("https://127.0.0.1:{local}/served/.git");
        run("git", &["clone", "--quiet", &address, carrier]);
        assert!(std::fs::read(sandbox.path(&format!("{carrier}/folder/noise"))).unwrap() == noise);
        assert_eq!(sandbox.read(&format!("{carrier}/text")), "a line\r\nwithout an end");
        run("git", &["-C", carrier, "fsck", "--full", "--strict"]);
        let heads =
            [served.as_str(), carrier].map(|at| run("git", &["-C", at, "rev-parse", "HEAD"]));
        assert_eq!(heads[0], heads[1]);
        let status = sandbox.weir(&["tunnel", "status", "--json", "--status-socket", &socket]);
        let status: serde_json::Value = serde_json::from_str(&status.stdout).unwrap();
        assert_eq!(status[0]["connections"][0]["carrier"], carrier, "{status}");
    }
}

/// Hides the user's own settings of git, authorities and proxies. A hook of git sets GIT_DIR, by
/// which this test would commit to the user's repository.
fn hide_own_settings(command: &mut Command, home: &Path) {
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"GIT_") {
            command.env_remove(name);
        }
    }
    command.env("HOME", home).env("XDG_CONFIG_HOME", home).env("GIT_CONFIG_NOSYSTEM", "1");
    command.env("GIT_TERMINAL_PROMPT", "0").env("no_proxy", "*");
}
