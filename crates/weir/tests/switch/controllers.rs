//! os-ken, a controller from PyPI, to which the switch connects.

use super::test_switch::{TestSwitch, sandbox};
use crate::support::{Running, Sandbox, await_some};
use std::process::{Command, Stdio};

/// Finds a Python with os-ken: `python3`, or the program in OSKEN_PYTHON.
fn python() -> Option<String> {
    let python = std::env::var("OSKEN_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut command = Command::new(&python);
    command.args(["-c", "import os_ken"]).stderr(Stdio::null());
    if command.status().is_ok_and(|status| status.success()) {
        return Some(python);
    }
    testing::skip_because(
        testing::Need::PythonModule("os_ken"),
        "PyPI: os-ken; OSKEN_PYTHON may name its Python",
    );
    None
}

/// Starts a learning switch on os-ken.
fn controller(sandbox: &Sandbox, python: &str) -> Running {
    sandbox.write("learning.py", include_str!("learning.py"));
    let mut command = Command::new(python);
    command.args(["-B", "learning.py"]);
    sandbox.start_command(command)
}

fn packet(source: u8, destination: u8) -> String {
    format!(
        "in_port(1),eth(src=50:54:00:00:00:0{source},dst=50:54:00:00:00:0{destination}),\
         eth_type(0x0800),ipv4(src=10.0.0.2,dst=10.0.0.1,proto=17,tos=0,ttl=64,frag=no),\
         udp(src=1,dst=2)"
    )
}

#[test]
fn a_controller_that_starts_after_the_switch_can_add_rules() {
    let Some(python) = python() else { return };
    let Some(sandbox) = sandbox() else { return };
    sandbox.write(
        "switch.toml",
        "[bridge.br0]\ncontroller = [\"127.0.0.1:6653\"]\n[bridge.br0.port]\n\
         p1 = { type = \"dummy\" }\np2 = { type = \"dummy\" }\np3 = { type = \"dummy\" }\n",
    );
    let switch = TestSwitch::start(sandbox, &["--config", "switch.toml"]);
    let controller = controller(&switch.sandbox, &python);
    await_some("the rule for packets that no other takes", || {
        let text = switch.ofctl(&["dump-flows", "br0"]);
        text.contains("actions=CONTROLLER:65535").then_some(())
    });
    let sent = |port: &str| {
        let text = switch.weir(&["dump-ports", "br0", port]);
        let number = text.split_once("tx pkts=").unwrap().1.split_once(',').unwrap().0;
        number.parse::<u64>().unwrap()
    };
    switch.appctl(&["netdev-dummy/receive", "p1", &packet(1, 2)]);
    await_some("the flood", || (sent("p2") == 1 && sent("p3") == 1).then_some(()));
    switch.appctl(&["netdev-dummy/receive", "p2", &packet(2, 1)]);
    await_some("the answer", || (sent("p1") == 1).then_some(()));
    await_some("a rule", || {
        let text = switch.ofctl(&["dump-flows", "br0"]);
        text.contains("dl_dst=50:54:00:00:00:01 actions=output:1").then_some(())
    });
    assert_eq!(sent("p3"), 1);
    controller.signal("KILL");
    controller.end();
    switch.end();
}
