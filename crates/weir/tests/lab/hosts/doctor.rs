//! `weir doctor --from A --to B`: a test between two hosts that is observed at both hosts.

use super::*;

const ENDS: [&str; 7] = ["doctor", "--from", "client", "--to", "server", "--ssh-config", "config"];

/// A running `weir link up`, which ends with the test also after a panic.
struct Link(Child);

impl Drop for Link {
    fn drop(&mut self) {
        crate::support::signal(self.0.id(), "INT");
        let _ = self.0.wait();
    }
}

impl Hosts {
    fn doctor(&self, more: &[&str]) -> CommandOutput {
        self.sandbox.weir(&[&ENDS[..], &["--address", "10.9.3.2"], more].concat())
    }
}

#[test]
fn ends_that_cannot_be_used_are_named_together_and_nothing_stays() {
    let Some(mut hosts) = Hosts::new() else { return };
    let refused = |hosts: &Hosts, more: &[&str], reason: &str| {
        let output = hosts.doctor(more);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stderr.contains(reason), "{reason}: {output:?}");
        assert_eq!(output.stdout, "");
        hosts.assert_nothing_is_left();
    };
    let output = hosts.sandbox.weir(&["doctor", "--from", "client", "--to", "client"]);
    assert!(output.stderr.contains("the same machine"), "{output:?}");
    let output = hosts.sandbox.weir(&["doctor", "--from", "client"]);
    assert!(output.stderr.contains("--to"), "{output:?}");
    refused(&hosts, &["--port", "22"], "server: another program listens on port 22 there");
    hosts.write_client_configuration("host", "other");
    refused(&hosts, &[], "client: ssh was refused");
    hosts.write_client_configuration("host", "user");
    hosts.stop(1);
    refused(&hosts, &[], "server: it cannot be reached");
}

/// A small window at the receiver limits one direction. Only the receiver's machine has the setting
/// of the window, and only the sender's kernel counts the time that the window limits the sender.
#[test]
#[ignore = "takes a quarter of a minute"]
fn both_ends_of_a_slow_path_give_one_diagnosis() {
    let Some(hosts) = Hosts::with_middle() else { return };
    let weir = env!("CARGO_BIN_EXE_weir");
    let mut link = Command::new(weir);
    link.args(["link", "up", "--a", "left", "--b", "right", "--rtt", "20ms", "--rate", "200mbit"]);
    link.env("XDG_RUNTIME_DIR", hosts.sandbox.home()).stdin(Stdio::null());
    link.stdout(Stdio::null()).stderr(Stdio::null());
    let link = Link(hosts.hosts[2].inside.run(|| Ok(link.spawn())).unwrap().unwrap());
    let small = "net.ipv4.tcp_rmem=4096 65536 65536";
    let set = || Ok(Command::new("sysctl").args(["-qw", small]).status().unwrap().success());
    assert!(hosts.hosts[1].inside.run(set).unwrap());
    let judged = testing::undisturbed("diagnosis of both ends", |_| {
        let output = hosts.doctor(&["--json"]);
        let found: serde_json::Value = serde_json::from_str(&output.stdout).unwrap_or_default();
        match found["verdict"]["cause"] == "receiver-window" {
            true => testing::Attempt::Right(found),
            false => testing::Attempt::Wrong(format!("{output:?}")),
        }
    });
    hosts.assert_nothing_is_left();
    let page = hosts.doctor(&[]);
    drop(link);
    let judged = judged.unwrap();
    let labels: Vec<_> =
        judged["periods"].as_array().unwrap().iter().map(|one| &one["label"]).collect();
    assert_eq!(labels, ["client to server", "server to client"]);
    for (period, sender) in judged["periods"].as_array().unwrap().iter().zip(["client", "server"]) {
        let flow = &period["flows"][0];
        assert_eq!(flow["from"], sender);
        let ends = flow["ends"].as_array().unwrap();
        let named: Vec<_> = ends.iter().map(|end| (&end["name"], end["sends"] == true)).collect();
        assert_eq!(named[0].0, "client");
        assert_eq!([named[0].1, named[1].1], [sender == "client", sender == "server"]);
        assert!(ends.iter().all(|end| end["rate"].is_string()), "{flow}");
    }
    let sentence = judged["verdict"]["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("At client"), "{sentence}");
    assert!(page.stdout.lines().count() <= 12, "{page:?}");
    for words in ["client sends", "server receives"] {
        assert!(page.stdout.contains(words), "{page:?}");
    }
    hosts.assert_nothing_is_left();
}
