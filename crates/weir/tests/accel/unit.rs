//! The systemd unit of `weir accel unit`.

use crate::support::is_installed;
use crate::test_machine::TestMachine;
use crate::test_machine::pair::Pair;
use crate::test_machine::transfer::accel;
use std::path::Path;
use std::process::Command;

fn unit(policy: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command.args(["accel", "unit", policy]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn words<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    let lines = unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    lines.flat_map(str::split_whitespace).collect()
}

#[test]
fn the_systemd_unit_names_the_command_and_the_policy_file() {
    let unit = unit("/etc/some/policy.toml");
    let weir = env!("CARGO_BIN_EXE_weir");
    assert!(
        unit.contains(&format!("ExecStart={weir} accel policy /etc/some/policy.toml")),
        "{unit}"
    );
    // ProtectHome=yes would hide a policy in a home directory.
    assert!(self::unit("/root/policy.toml").contains("ProtectHome=read-only\n"));
}

#[test]
fn the_systemd_unit_confines_the_service() {
    let Some(folder) = installed("systemd-analyze") else { return };
    let file = folder.path().join("weir-accel.service");
    std::fs::write(&file, unit("/etc/weir/accel.toml")).unwrap();
    let words = ["security", "--offline=true", file.to_str().unwrap()];
    let judged = Command::new("systemd-analyze").args(words).output().unwrap();
    let text = String::from_utf8_lossy(&judged.stdout).into_owned();
    let exposure = text.lines().find_map(|line| line.split("Overall exposure level for ").nth(1));
    let Some(exposure) = exposure else {
        return testing::skip_because(testing::Need::UnitAnalysis, text);
    };
    let level: f64 = exposure.split(' ').nth(1).unwrap().parse().unwrap();
    eprintln!("ATTACK accel-unit: {exposure}");
    // The unit cannot avoid the remaining exposure: BPF needs the user root and CAP_SYS_ADMIN, the
    // rules need the machine's network, and other network namespaces need CAP_SYS_PTRACE.
    assert!(level <= 2.5, "{text}");
    assert!(!String::from_utf8_lossy(&judged.stderr).contains("ignoring"), "{judged:?}");
}

/// The package's unit must have the same settings, with the package's paths.
#[test]
fn the_packaged_unit_equals_the_printed_unit() {
    let printed = unit("/etc/weir/accel.toml").replace(env!("CARGO_BIN_EXE_weir"), "/usr/bin/weir");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/weir-accel.service");
    let packaged = std::fs::read_to_string(path).unwrap();
    let without = packaged.replace("Documentation=man:weir-accel(1)\n", "");
    // The path of this test's own program may lie in a home directory.
    let printed = printed.replace("ProtectHome=read-only", "ProtectHome=yes");
    assert_eq!(without, printed);
}

/// The package's script must disable accel, because the command that could disable accel is about
/// to be removed.
#[test]
fn removing_the_package_disables_the_accel_that_a_user_enabled() {
    let Some(machine) = TestMachine::new() else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/prerm");
    let weir = Path::new(env!("CARGO_BIN_EXE_weir")).parent().unwrap();
    let path = format!("PATH={}:{}", weir.display(), std::env::var("PATH").unwrap());
    let prerm = |action: &str| {
        let output = machine.run("env", &[&path, "sh", script.to_str().unwrap(), action]);
        assert_eq!(output.code, Some(0), "{action}: {}", output.stderr);
        output.stderr
    };
    assert_eq!(prerm("remove"), "");
    let wmem = machine.run("cat", &["/proc/sys/net/ipv4/tcp_wmem"]).stdout;
    accel(&machine, &["enable", "tcpa", "--all"]);
    assert_eq!(prerm("upgrade"), "");
    assert_eq!(machine.status()["state"], "on");
    let message = prerm("remove");
    assert!(message.contains("tcpa is off"), "{message}");
    assert_eq!(machine.pinned(), "");
    assert_eq!(machine.run("cat", &["/proc/sys/net/ipv4/tcp_wmem"]).stdout, wmem);
}

/// The unit's capabilities and writable paths must suffice for all that a policy does.
#[test]
fn the_command_works_under_the_confinement_of_its_unit() {
    let Some(machine) = TestMachine::new() else { return };
    if !is_installed("setpriv") {
        return testing::skip(testing::Need::Program("setpriv"));
    }
    let pair = Pair::lay(&machine);
    let policy = machine.write(
        "policy.toml",
        "[[rule]]\nalgorithm = \"caqm\"\n\n[[rule]]\n\n\
         [caqm]\ninterface = [\"near:eth0\", \"far:eth0\"]\ntrusts_path = true\n\n\
         [system]\nwmem = [4096, 16384, 9000000]\n",
    );
    let unit = unit(&policy);
    let capabilities = words(&unit, "CapabilityBoundingSet").into_iter();
    let kept = capabilities.map(|name| name.strip_prefix("CAP_").unwrap().to_lowercase());
    let bounds = kept.fold("-all".to_owned(), |bounds, name| format!("{bounds},+{name}"));
    let writable = words(&unit, "ReadWritePaths").join(" ");
    let wmem = || machine.run("cat", &["/proc/sys/net/ipv4/tcp_wmem"]).stdout;
    let before = wmem();
    // Mounts the paths as systemd does: each writable path is a separate mount, and all other paths
    // are read-only.
    let script = "mount -t proc -o hidepid=invisible proc /proc\n\
         for place in $WRITABLE; do mount --rbind $place $place; done\n\
         mount --rbind /proc/sys /proc/sys && mount --rbind /proc/sys/net /proc/sys/net\n\
         for place in / /proc/sys /sys /sys/fs/cgroup; do mount -o remount,bind,ro $place; done\n\
         cd / && ! touch /etc/weir-test 2>/dev/null && \
         exec setpriv --no-new-privs --bounding-set \"$BOUNDS\" --inh-caps -all \"$@\"";
    let confined = |words: &[&str]| {
        let weir = env!("CARGO_BIN_EXE_weir");
        let (writable, bounds) = (format!("WRITABLE={writable}"), format!("BOUNDS={bounds}"));
        let begin = [&writable, &bounds, "unshare", "--mount", "sh", "-c", script, "sh", weir];
        let output = machine.run("env", &[&begin[..], words].concat());
        assert_eq!(output.code, Some(0), "{words:?}: {}", output.stderr);
    };
    confined(&["accel", "policy", &policy]);
    assert_eq!(pair.transfer(5870, &[]), "caqm");
    assert_eq!(machine.transfer(5871, &[]).0, "tcpa");
    assert!(wmem().contains("9000000"), "{}", wmem());
    // A reload applies the file again.
    confined(&["accel", "policy", &policy]);
    assert_eq!(machine.status()["rules"].as_array().unwrap().len(), 1);
    confined(&["accel", "disable"]);
    assert_eq!(machine.pinned(), "");
    assert_eq!(wmem(), before);
}

/// Makes a folder for a unit; `None`, with a note, if the program that judges units is not
/// installed.
fn installed(program: &'static str) -> Option<tempfile::TempDir> {
    if !is_installed(program) {
        testing::skip(testing::Need::Program(program));
        return None;
    }
    Some(tempfile::tempdir().unwrap())
}
