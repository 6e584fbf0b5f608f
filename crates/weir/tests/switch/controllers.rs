//! Controllers to which the switch connects: os-ken from PyPI, and the test itself.

use super::test_switch::{TestSwitch, sandbox};
use crate::support::{Running, Sandbox, await_some};
use std::io::Write;
use std::net::TcpListener;
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

/// The test is the controller, and sends echo requests until ovs-ofctl has printed a request and a
/// reply.
#[test]
fn snoop_prints_the_messages_of_a_controller_in_both_directions() {
    let Some(sandbox) = sandbox() else { return };
    let listener = sandbox.inside(|| TcpListener::bind("127.0.0.1:0").unwrap());
    let address = listener.local_addr().unwrap();
    sandbox.write("switch.toml", format!("[bridge.br0]\ncontroller = [\"{address}\"]\n"));
    let switch = TestSwitch::start(sandbox, &["--config", "switch.toml"]);
    let (mut controller, _) = listener.accept().unwrap();
    controller.write_all(&[4, 0, 0, 8, 0, 0, 0, 1]).unwrap();
    let mut command = Command::new("ovs-ofctl");
    command.args(["snoop", "br0"]).env("OVS_RUNDIR", switch.sandbox.path("run"));
    let snoop = switch.sandbox.start_command(command);
    await_some("the copies", || {
        controller.write_all(&[4, 2, 0, 8, 0, 0, 0, 9]).unwrap();
        let (output, errors) = snoop.output_so_far();
        let said = output + &errors;
        let has = |kind: &str| said.contains(&format!("{kind} (OF1.3) (xid=0x9)"));
        (has("OFPT_ECHO_REQUEST") && has("OFPT_ECHO_REPLY")).then_some(())
    });
    snoop.signal("TERM");
    snoop.end();
    switch.end();
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
