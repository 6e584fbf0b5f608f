use crate::support::{Running, Sandbox, await_some};
use serde_json::Value;
use std::process::Command;

pub fn ip(sandbox: &Sandbox, words: &str) {
    let mut command = Command::new("ip");
    command.args(words.split(' '));
    let output = sandbox.start_command(command).end();
    assert!(output.status.success(), "ip {words}: {}", output.stderr);
}

pub fn cable(sandbox: &Sandbox, a: &str, b: &str) {
    ip(sandbox, &format!("link add {a} type veth peer name {b}"));
    ip(sandbox, &format!("link set {a} up"));
    ip(sandbox, &format!("link set {b} up"));
}

/// Starts an emulated link between `dev0` and `dev1`, whose veth peers are `gen0` and `gen1`.
pub fn link(sandbox: &Sandbox, settings: &[&str]) -> Running {
    cable(sandbox, "gen0", "dev0");
    cable(sandbox, "gen1", "dev1");
    let mut words = vec!["link", "up", "--a", "dev0", "--b", "dev1", "--no-real-time"];
    let name = format!("gen-{}", std::process::id());
    words.extend(["--name", &name]);
    words.extend(settings);
    let running = sandbox.start(&words);
    await_some("the link", || {
        let (stdout, stderr) = running.output_so_far();
        format!("{stdout}{stderr}").contains("is up").then_some(())
    });
    running
}

/// Starts a switch between `dev0` (port 1) and `dev1` (port 2), whose veth peers are `gen0` and
/// `gen1`. `options`: the options of the port behind `dev1`, such as `,rate=100mbit`.
pub fn start_switch(sandbox: &Sandbox, rules: &str, options: &str) -> Running {
    cable(sandbox, "gen0", "dev0");
    cable(sandbox, "gen1", "dev1");
    sandbox.write("rules.txt", rules);
    let far = format!("br0:dev1=packet:dev1,number=2{options}");
    let running = sandbox.start(&[
        "switch",
        "run",
        "--rundir",
        "run",
        "--bridge",
        "br0",
        "--port",
        "br0:dev0=packet:dev0,number=1",
        "--port",
        &far,
    ]);
    await_some("the switch", || {
        let show = sandbox.weir(&["switch", "show", "--rundir", "run"]);
        show.status.success().then_some(())
    });
    let loaded = sandbox.weir(&["switch", "add-flows", "br0", "rules.txt", "--rundir", "run"]);
    assert!(loaded.status.success(), "{loaded:?}");
    running
}

/// Writes the profile of the flow-rules reference report with other numbers.
pub fn write_profile(sandbox: &Sandbox, name: &str, capture: &str, cps: f64, limit: u32) {
    let text = format!(
        "- duration : 1\n  generator :\n          distribution : \"seq\"\n          \
         clients_start : \"16.0.0.1\"\n          clients_end   : \"16.0.0.255\"\n          \
         servers_start : \"48.0.0.1\"\n          servers_end   : \"48.0.255.255\"\n          \
         clients_per_gb : 201\n          min_clients    : 101\n          \
         dual_port_mask : \"1.0.0.0\"\n          tcp_aging      : 0\n          \
         udp_aging      : 0\n  cap_info :\n     - name: {capture}\n       cps   : {cps:.1}\n       \
         ipg   : 10000\n       rtt   : 10000\n       w     : 1\n       limit : {limit}\n"
    );
    sandbox.write(name, text);
}

pub fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}
