//! Kernel settings of the hosts: for all systems, for one system, and along an axis.

use crate::support::Sandbox;
use testing::Attempt;

#[test]
fn each_system_may_have_its_own_kernel_settings() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("own.toml", OWN);
    // On a stalled machine the link carries less for a while.
    testing::undisturbed("kernel settings of a system", |attempt| {
        let out = format!("run-{attempt}");
        let output = sandbox.weir(&["lab", "run", "own.toml", "--out", &out]);
        let results = sandbox.results(&out);
        let of = |system: &str| {
            let cells = results["cells"].as_array().unwrap();
            let cell = cells.iter().find(|cell| cell["system"] == system).unwrap();
            // A turn that fails on a stalled machine has no result.
            cell["metrics"]["goodput_mbit_s"]["median"].as_f64().unwrap_or(f64::NAN)
        };
        let (small, large) = (of("small"), of("large"));
        // The report must state the settings, because the names of the systems do not.
        let shown = &results["method"]["kernel settings of small"];
        assert_eq!(*shown, "net.ipv4.tcp_wmem = 4096 16384 32768", "{output:?}");
        // 32 KiB hold two super-packets of 64 KiB, which take a round trip of 100 ms.
        if small < 15.0 && large > small {
            Attempt::Right(())
        } else {
            Attempt::Wrong(format!("Mbit/s with a small and a large buffer: {small}, {large}"))
        }
    });
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn a_setting_may_contain_an_axis_but_no_other_placeholder() {
    let Some(sandbox) = Sandbox::new() else { return };
    let axis = "[axes]\nwmem = [\"4096 16384 32768\", \"4096 16384 4194304\"]\n[sysctl]\n\
                \"net.ipv4.tcp_wmem\" = \"{wmem}\"\n";
    let plain = OWN.replace("sysctl = {", "note = \"\" # {");
    for (text, answer) in [(axis.to_owned(), "no mistakes"), (axis.replace("{wm", "{vm"), "vmem")] {
        sandbox.write("axis.toml", format!("{plain}\n{text}"));
        let output = sandbox.weir(&["lab", "validate", "axis.toml"]);
        let said = format!("{}{}", output.stdout, output.stderr);
        assert!(said.contains(answer), "{said}");
    }
    sandbox.write("host.toml", OWN.replace("net.ipv4.tcp_wmem", "kernel.hostname"));
    let output = sandbox.weir(&["lab", "validate", "host.toml"]);
    assert!(output.stderr.contains("begin with `net.`"), "{output:?}");
}

const OWN: &str = r#"
name = "own"
hosts = ["a", "b"]

[[link]]
between = ["a", "b"]
rate = "20mbit"
rtt = "100ms"

[workload]
kind = "bulk"
from = "a"
to = "b"
omit = "1s"

[[system]]
name = "small"
kind = "tcp"
congestion = "cubic"
sysctl = { "net.ipv4.tcp_wmem" = "4096 16384 32768" }

[[system]]
name = "large"
kind = "tcp"
congestion = "cubic"
sysctl = { "net.ipv4.tcp_wmem" = "4096 16384 4194304" }

[form.full]
repeats = 1
duration = "3s"
"#;
