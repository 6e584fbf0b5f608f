use crate::device::{cable, ip, write_profile};
use crate::support::Sandbox;
use serde_json::Value;

#[test]
fn usage_errors_of_the_generator_are_refused_with_advice() {
    let Some(sandbox) = Sandbox::new() else { return };
    write_profile(&sandbox, "right.yaml", "cap2/udp_64B.pcap", 100.0, 4);
    sandbox.write("wrong.yaml", "- duraton : 1\n  cap_info : []\n  generator : 7\n");
    write_profile(&sandbox, "idle.yaml", "cap2/udp_64B.pcap", 0.0, 4);
    write_profile(&sandbox, "long.yaml", "cap2/udp_10_pkts.pcap", 1e9, 4);
    write_profile(&sandbox, "endless.yaml", "/dev/zero", 100.0, 4);
    write_profile(&sandbox, "missing.yaml", "cap2/udp_46B.pcap", 100.0, 4);
    for (words, message) in [
        (&["-d", "1"][..], "name one with -f"),
        (&["-f", "none.yaml", "--port", "null"], "cannot read none.yaml"),
        (&["-f", "none.yaml", "--port", "null"], "`weir gen --profiles`"),
        (&["-f", "/none/imix.yaml", "--port", "null"], "cannot read /none/imix.yaml"),
        (&["-f", "right.yaml"], "--port null"),
        (&["-f", "right.yaml", "--port", "nosuch0"], "there is no interface"),
        (
            &["-f", "right.yaml", "--port", "null", "--port", "null", "--port", "null"],
            "pairs of ports",
        ),
        (&["-f", "right.yaml", "--port", "null,vlam=3"], "did you mean `vlan`?"),
        (&["-f", "right.yaml", "--port", "null", "-m", "0"], "above 0"),
        (&["-f", "right.yaml", "--port", "null", "-d", "0"], "more than 0"),
        (&["-f", "right.yaml", "--port", "null", "-m", "1e300"], "lower -m"),
        (&["-f", "idle.yaml", "--port", "null"], "every `cps` is 0"),
        (&["-f", "long.yaml", "--port", "null", "-d", "60"], "flows would be open at once"),
        (
            &["-f", "right.yaml", "--port", "null", "--addressing", "lockstp"],
            "did you mean `lockstep`?",
        ),
        (&["-f", "wrong.yaml", "--port", "null"], "wrong.yaml:1: unknown key `duraton`"),
        (&["-f", "missing.yaml", "--port", "null"], "missing.yaml:14: cap2/udp_46B.pcap: there"),
        (&["-f", "missing.yaml", "--port", "null"], "did you mean `udp_64B`?"),
        (
            &["-f", "endless.yaml", "--port", "null"],
            "cannot read /dev/zero: is a device, not a regular file",
        ),
        (&["-f", "right.yaml", "--port", "null", "--cpus", "4000"], "may not run on CPU 4000"),
        (&["-f", "right.yaml", "--port", "null", "--cpus", "a"], "--cpus"),
        (&["-f", "right.yaml", "--port", "null", "--iom", "3"], "0..=2"),
        (
            &["-f", "right.yaml", "--port", "null", "-k", "5"],
            "TRex's -k is not supported: -w waits",
        ),
        (&["-f", "right.yaml", "--port", "null", "--rx-check", "128"], "-l PPS counts lost"),
        (&["--astf", "-f", "http.py", "--port", "null"], "weir perf measures TCP connections"),
        (&["-i", "--stl"], "TRex's -i is not supported"),
        (&["ndr", "--port", "null"], "no port receives"),
        (&["ndr", "--port", "null", "--size", "12"], "64 to 9234"),
        (&["ndr", "--port", "null", "--min-rate", "5k", "--max-rate", "4k"], "not below"),
        (&["ndr", "--port", "null", "--min-rate", "2gbit", "--max-rate", "100mbit"], "not below"),
        (&["ndr", "--port", "null", "--max-rate", "100mbut"], "bits a second as 100mbit"),
        (&["ndr", "--port", "null", "--goal", "200%"], "from 0% to 100%"),
        (&["ndr", "--port", "null", "--goal", "2"], "write 2%"),
    ] {
        let mut all = vec!["gen"];
        all.extend(words);
        let output = sandbox.weir(&all);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", output.stderr);
        assert!(output.stderr.contains(message), "{words:?}: {}", output.stderr);
    }
    let output = sandbox.weir(&["gen", "-f", "wrong.yaml", "--check"]);
    assert!(output.stderr.lines().count() >= 3, "all mistakes at once: {}", output.stderr);
    let output = sandbox.weir(&["gen", "-f", "right.yaml", "--check", "-m", "10"]);
    assert!(output.status.success() && output.stdout.contains("1000 pps"), "{output:?}");
    let output = sandbox.weir(&["gen", "-f", "right.yaml", "--check", "-m", "10", "--json"]);
    let document: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(document["planned_pps"], 1000.0, "{output:?}");
    let output = sandbox.weir(&["gen", "--captures", "--json"]);
    let names: Vec<String> = serde_json::from_str(&output.stdout).unwrap();
    assert!(names.iter().any(|name| name == "udp_64B.pcap"), "{output:?}");
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn options_of_trex_that_change_no_packet_are_accepted() {
    let Some(sandbox) = Sandbox::new() else { return };
    write_profile(&sandbox, "p.yaml", "cap2/udp_64B.pcap", 100.0, 4);
    let run = ["gen", "-f", "p.yaml", "-d", "0.1", "--port", "null", "--port", "null"];
    let mut typed = run.to_vec();
    typed.extend(["--nc", "--iom", "0", "-v", "7", "--no-watchdog", "--prefix", "a", "--hdrh"]);
    let output = sandbox.weir(&typed);
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.contains("--hdrh has no effect: -l always reports"), "{output:?}");
    assert!(output.stderr.contains("-v has no effect"), "{output:?}");
    assert!(!output.stderr.contains("--nc"), "the option changes nothing: {output:?}");
    assert!(!sandbox.weir(&["gen", "--help"]).stdout.contains("--nc"));
}

#[test]
fn a_tap_device_is_up_during_the_run() {
    let Some(sandbox) = Sandbox::new() else { return };
    write_profile(&sandbox, "p.yaml", "cap2/udp_64B.pcap", 100.0, 4);
    let run = ["gen", "-f", "p.yaml", "-d", "0.2", "--port", "tap:tap0", "--port", "null"];
    let output = sandbox.weir(&run);
    assert!(output.status.success(), "{}{}", output.stdout, output.stderr);
    assert!(output.stdout.contains(" Total-tx-pkt         : 20 pkts"), "{}", output.stdout);
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

/// A packet without a VLAN tag must not use the room that a link has for a tag.
#[test]
fn a_frame_one_byte_longer_than_the_mtu_is_refused() {
    let Some(sandbox) = Sandbox::new() else { return };
    cable(&sandbox, "gen0", "gen1");
    let output =
        sandbox.weir(&["gen", "ndr", "--size", "1519", "--port", "gen0", "--port", "gen1"]);
    assert_eq!(output.status.code(), Some(2), "{}", output.stderr);
    assert!(output.stderr.contains("`ip link set gen0 mtu 1501`"), "{}", output.stderr);
    ip(&sandbox, "link del gen0");
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn the_profiles_of_the_help_exist() {
    let Some(sandbox) = Sandbox::new() else { return };
    let help = sandbox.weir(&["gen", "--help"]).stdout;
    let named = help.split_whitespace().filter(|word| word.ends_with(".yaml"));
    let named: Vec<_> = named.filter(|word| !word.contains("trex_cfg")).collect();
    assert!(named.len() >= 5, "{named:?}");
    for name in named {
        let output = sandbox.weir(&["gen", "-f", name, "--check", "--json"]);
        assert!(output.status.success(), "{name}: {output:?}");
        let document: Value = serde_json::from_str(&output.stdout).unwrap();
        assert!(document["planned_pps"].as_f64().unwrap() >= 10_000.0, "{name}: {document}");
    }
    let listed = sandbox.weir(&["gen", "--profiles"]).stdout;
    assert!(listed.lines().count() >= 4, "{listed}");
    for name in listed.lines() {
        assert!(help.contains(&format!("  {name} ")), "{name}: {help}");
        for path in [name.to_owned(), format!("cap2/{name}")] {
            let words =
                ["gen", "-f", &path, "-d", "0.1", "--port", "null", "--port", "null", "--json"];
            let document: Value = serde_json::from_str(&sandbox.weir(&words).stdout).unwrap();
            assert!(document["packets"]["sent"].as_u64().unwrap() >= 1000, "{path}: {document}");
        }
    }
    let json = sandbox.weir(&["gen", "--profiles", "--json"]).stdout;
    let names: Vec<String> = serde_json::from_str(&json).unwrap();
    assert_eq!(names, listed.lines().collect::<Vec<_>>());
    // A file `imix.yaml` takes precedence over the built-in profile of this name.
    write_profile(&sandbox, "imix.yaml", "cap2/udp_64B.pcap", 7.0, 4);
    let output = sandbox.weir(&["gen", "-f", "imix.yaml", "--check"]);
    assert!(output.stdout.contains("7 pps"), "{output:?}");
    assert_eq!(sandbox.leftovers(), [""; 0]);
}
