//! `weir switch run --ovsdb`: Debian's ovsdb-server holds the settings, and ovs-vsctl changes them.

use super::interfaces::hosts;
use super::test_switch::await_control;
use crate::support::{CommandOutput, Running, Sandbox, await_some, is_installed};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::process::Command;
use testing::Need;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// A folder with a database. The test's programs run in a sandbox.
pub struct Database {
    pub sandbox: Sandbox,
}

impl Database {
    /// Makes a new database; `None` if the programs are not installed.
    pub fn new() -> Option<Self> {
        for tool in ["ovs-ofctl", "ovs-appctl", "ovsdb-server", "ovsdb-tool", "ovs-vsctl", SCHEMA] {
            if !is_installed(tool) {
                testing::skip(Need::Program(tool));
                return None;
            }
        }
        let database = Self { sandbox: Sandbox::new()? };
        std::fs::create_dir(database.sandbox.path("run")).unwrap();
        database.create(&std::fs::read_to_string(SCHEMA).unwrap());
        Some(database)
    }

    fn create(&self, schema: &str) {
        self.sandbox.write("schema", schema);
        let file = self.sandbox.path("conf.db");
        let _ = std::fs::remove_file(&file);
        let mut command = Command::new("ovsdb-tool");
        command.arg("create").arg(&file).arg("schema");
        let ended = self.sandbox.start_command(command).end();
        assert!(ended.status.success(), "{ended:?}");
    }

    fn socket(&self) -> String {
        format!("unix:{}", self.sandbox.path("run/db.sock").display())
    }

    pub fn serve(&self) -> Running {
        let mut command = Command::new("ovsdb-server");
        let path = |name: &str| self.sandbox.path(name).display().to_string();
        command.args(["-vconsole:warn", "-vsyslog:off", "--log-file=/dev/null"]);
        command.arg(format!("--unixctl={}", path("ovsdb.ctl")));
        command.arg(format!("--remote=p{}", self.socket())).arg(path("conf.db"));
        let server = self.sandbox.start_command(command);
        await_some("the database", || {
            self.vsctl(&["-t", "1", "--no-wait", "init"]).status.success().then_some(())
        });
        server
    }

    pub fn switch(&self) -> Running {
        let rundir = self.sandbox.path("run").display().to_string();
        let switch =
            self.sandbox.start(&["switch", "run", "--rundir", &rundir, "--ovsdb", &self.socket()]);
        await_control(&self.sandbox, &switch);
        switch
    }

    pub fn tool(&self, tool: &str, words: &[&str]) -> CommandOutput {
        let mut command = Command::new(tool);
        command.args(words).env("OVS_RUNDIR", self.sandbox.path("run"));
        self.sandbox.start_command(command).end()
    }

    fn vsctl(&self, words: &[&str]) -> CommandOutput {
        let socket = self.socket();
        let words = [&["--db", &socket, "-t", "60"], words].concat();
        self.tool("ovs-vsctl", &words)
    }

    /// Runs `ovs-vsctl WORDS`, which waits for the switch. Panics if the command fails.
    pub fn set(&self, words: &str) -> String {
        let words: Vec<_> = words.split_whitespace().collect();
        let ended = self.vsctl(&words);
        assert!(ended.status.success(), "{words:?}: {}", ended.stderr);
        ended.stdout.trim().to_owned()
    }

    pub fn ofctl(&self, words: &[&str]) -> String {
        let ended = self.tool("ovs-ofctl", &[&["-t", "60"], words].concat());
        assert!(ended.status.success(), "ovs-ofctl {words:?}: {}", ended.stderr);
        ended.stdout
    }

    fn appctl(&self, words: &[&str]) -> String {
        let ended = self.tool("ovs-appctl", &[&["-T", "60"], words].concat());
        assert!(ended.status.success(), "ovs-appctl {words:?}: {}", ended.stderr);
        ended.stdout
    }

    pub fn end(self, switch: Running, server: Option<Running>) {
        switch.signal("TERM");
        let ended = switch.end();
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        if let Some(server) = server {
            server.signal("TERM");
            server.end();
        }
        let left = std::fs::read_dir(self.sandbox.path("run")).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| name == "db.sock"), "{left:?}");
        assert_eq!(self.sandbox.leftovers(), Vec::<String>::new());
    }
}

/// Mininet creates hosts, links and bridges by its own commands. Mininet runs in its own
/// namespaces, because it expects the database at a fixed path.
#[test]
fn mininet_reaches_every_host_over_the_switch() {
    for tool in ["mn", "ovs-vsctl", "ovsdb-server", "ovs-testcontroller", "unshare", SCHEMA] {
        if !is_installed(tool) {
            return testing::skip(Need::Program(tool));
        }
    }
    let Some(sandbox) = Sandbox::new() else { return };
    let script = format!(
        "mount -t tmpfs -o mode=755 none /run && mkdir /run/openvswitch /run/netns && ip link set lo up || exit
        ovsdb-tool create conf.db {SCHEMA}
        ovsdb-server conf.db --remote=punix:/run/openvswitch/db.sock -vconsole:warn -vsyslog:off &
        until ovs-vsctl -t 5 --no-wait init; do sleep 0.1; done
        {} switch run --ovsdb unix:/run/openvswitch/db.sock &
        mn --topo single,2 --switch ovsbr --controller none --test pingall
        mn --topo linear,3 --test pingall
        ovs-vsctl -t 20 show",
        env!("CARGO_BIN_EXE_weir")
    );
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.args(["bash", "-c", &script]);
    let ended = sandbox.start_command(command).end();
    let said = format!("{}{}", ended.stdout, ended.stderr);
    for words in ["0% dropped (2/2 received)", "0% dropped (6/6 received)"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!ended.stdout.contains("Bridge"), "{said}");
}

/// Hosts `a` and `b` are in VLAN 10, `c` is in VLAN 20, and a mirror copies the packets of `a`.
#[test]
fn vlans_mirrors_and_controllers_change_while_the_switch_runs() {
    let Some(database) = Database::new() else { return };
    let server = database.serve();
    let switch = database.switch();
    database.set("add-br br0");
    for port in ["a", "b", "c", "t", "m"] {
        database.set(&format!("add-port br0 {port} -- set interface {port} type=dummy"));
    }
    database.set("set port a tag=10 -- set port b tag=10 -- set port c tag=20");
    let trace = |flow: &str| {
        let text = database.appctl(&["ofproto/trace", "br0", flow]);
        text.lines().last().unwrap_or_default().trim().to_owned()
    };
    let from_a = "in_port=a,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02";
    let actions = trace(from_a);
    // The bridge's own port and the trunks t and m get the tag; b gets no tag.
    assert!(actions.contains("push_vlan(vid=10") && !actions.contains('3'), "{actions}");
    let mirror = "-- --id=@a get port a -- --id=@m get port m -- --id=@x create mirror name=x \
                  select-src-port=@a output-port=@m -- set bridge br0 mirrors=@x";
    database.set(mirror);
    let mirrored = trace("in_port=a,dl_src=50:54:00:00:00:01,dl_dst=01:80:c2:00:00:00");
    assert!(mirrored.contains(",5"), "{mirrored}");
    database.set("clear bridge br0 mirrors");
    let dropped = trace("in_port=a,dl_src=50:54:00:00:00:01,dl_dst=01:80:c2:00:00:00");
    assert_eq!(dropped, "Datapath actions: drop");
    database.set("set bridge br0 other-config:forward-bpdu=true");
    let forwarded = trace("in_port=a,dl_src=50:54:00:00:00:01,dl_dst=01:80:c2:00:00:00");
    assert!(forwarded.contains("push_vlan(vid=10"), "{forwarded}");
    database.set("remove bridge br0 other_config forward-bpdu");
    database.set("set port a vlan_mode=dot1q-tunnel cvlans=20 other_config:qinq-ethtype=802.1q");
    let tunnelled = || trace(&format!("{from_a},dl_vlan=20"));
    assert!(tunnelled().contains("push_vlan(vid=10,pcp=0)"), "{}", tunnelled());
    database.set("remove port a other_config qinq-ethtype");
    assert!(tunnelled().contains("push_vlan(tpid=0x88a8,vid=10,pcp=0)"), "{}", tunnelled());
    assert_eq!(trace(&format!("{from_a},dl_vlan=21")), "Datapath actions: drop");

    let controller = database.sandbox.inside(|| TcpListener::bind("127.0.0.1:0").unwrap());
    let address = controller.local_addr().unwrap();
    database.set(&format!("set-controller br0 tcp:{address}"));
    let (mut peer, _) = controller.accept().unwrap();
    let mut hello = [0; 8];
    peer.read_exact(&mut hello).unwrap();
    assert!(!database.ofctl(&["dump-flows", "br0"]).contains("NORMAL"));
    database.set("del-controller br0");
    await_some("the end of the connection", || (peer.read(&mut hello).ok()? == 0).then_some(()));
    assert!(database.ofctl(&["dump-flows", "br0"]).contains("NORMAL"));
    database.set("set-controller br0 ptcp:16653:127.0.0.1");
    await_some("the listener", || {
        let words = ["-t", "5", "dump-flows", "tcp:127.0.0.1:16653"];
        database.tool("ovs-ofctl", &words).status.success().then_some(())
    });
    database.set("set-controller br0 ssl:10.0.0.9:6653");
    let status = await_some("the status", || {
        let listed = database.set("--columns=status list controller");
        listed.contains("last_error").then_some(listed)
    });
    assert!(status.contains("TLS has no private key"), "{status}");
    database.end(switch, Some(server));
}

/// Returns the number of packets that a port has sent, and the number of packets that the port has
/// dropped.
fn sent(database: &Database, bridge: &str, port: &str) -> (u64, u64) {
    let text = database.ofctl(&["dump-ports", bridge, port]);
    let line = text.lines().find(|line| line.contains("tx pkts=")).unwrap().to_owned();
    let figure = |name: &str| {
        let rest = line.split_once(name).unwrap().1;
        // A dummy port does not count drops, and ovs-ofctl prints `?`.
        rest.split(',').next().unwrap().parse().unwrap_or(0)
    };
    (figure("pkts="), figure("drop="))
}

#[test]
fn patch_ports_connect_bridges_and_forwarding_loops_end() {
    let Some(database) = Database::new() else { return };
    let server = database.serve();
    let switch = database.switch();
    let patch = |number: u8| {
        database.set(&format!(
            "add-port br0 x{number} -- set interface x{number} type=patch options:peer=y{number} \
             -- add-port br1 y{number} -- set interface y{number} type=patch options:peer=x{number}"
        ));
    };
    let add = "add-br br0 -- add-br br1 -- add-port br0 a -- set interface a type=dummy \
               -- add-port br1 b -- set interface b type=dummy";
    database.set(add);
    patch(1);
    let receive = |address: &str| {
        let packet =
            format!("in_port(1),eth(src={address},dst=50:54:00:00:00:02),eth_type(0x1234)");
        database.appctl(&["netdev-dummy/receive", "a", &packet]);
    };
    // Registers and metadata do not reach the next bridge.
    database.ofctl(&["del-flows", "br0"]);
    let load = "in_port=a actions=load:7->NXM_NX_REG0[],load:5->OXM_OF_METADATA[],output:x1";
    database.ofctl(&["add-flow", "br0", load]);
    database.ofctl(&[
        "add-flow",
        "br1",
        "in_port=y1,reg0=0,metadata=0,priority=9 actions=output:b",
    ]);
    (0..3).for_each(|_| receive("50:54:00:00:00:01"));
    assert_eq!((sent(&database, "br0", "x1").0, sent(&database, "br1", "b").0), (3, 3));
    let rules = database.ofctl(&["dump-flows", "br1"]);
    assert!(rules.contains("n_packets=3"), "{rules}");
    // Two pairs of patch ports between two learning bridges form a loop.
    patch(2);
    for bridge in ["br0", "br1"] {
        database.ofctl(&["del-flows", bridge]);
        database.ofctl(&["add-flow", bridge, "actions=NORMAL"]);
    }
    receive("50:54:00:00:00:03");
    let passed = sent(&database, "br0", "x1").0 + sent(&database, "br1", "y1").0;
    assert!((4..5_000).contains(&passed), "{passed} passed");
    let shown = database.set("get interface x1 status:weir_port");
    assert_eq!(shown, "\"patch to y1\"");
    database.set("del-port x2 -- del-port y1");
    let before = sent(&database, "br0", "x1");
    receive("50:54:00:00:00:04");
    assert_eq!(sent(&database, "br0", "x1"), before);
    let refused =
        database.vsctl(&["add-port", "br0", "z", "--", "set", "interface", "z", "type=patch"]);
    assert!(refused.stderr.contains("patch type requires valid 'peer' argument"), "{refused:?}");
    database.end(switch, Some(server));
}

fn await_words(switch: &Running, words: &str) {
    await_some(words, || switch.output_so_far().1.contains(words).then_some(()));
}

/// Runs the commands of the flow-rules report as the report's author typed the commands.
#[test]
fn the_commands_of_the_report_create_its_topology() {
    let Some(database) = Database::new() else { return };
    let server = database.serve();
    let switch = database.switch();
    for command in [
        "add-br br0-ovs -- set bridge br0-ovs datapath_type=netdev",
        "add-br br1-ovs -- set bridge br1-ovs datapath_type=netdev",
        "add-port br0-ovs pf0 -- set Interface pf0 type=dpdk options:dpdk-devargs=\"0000:65:00.0\"",
        "add-port br0-ovs vdpa1 -- set Interface vdpa1 type=dpdkvdpa \
         options:dpdk-devargs=\"0000:65:00.0,representor=[1]\" \
         options:vdpa-accelerator-devargs=\"0000:65:00.3\" options:vdpa-max-queues=8 \
         options:vdpa-socket-path=/var/run/virtio-forwarder/sock1",
        "add-port br1-ovs pf1 -- set Interface pf1 type=dpdk options:dpdk-devargs=\"0000:65:00.1\"",
        "set Open_vSwitch . other_config:pmd-cpu-mask=1",
        "set Interface vdpa1 other_config:pmd-rxq-affinity=0:0",
    ] {
        database.set(command);
    }
    let shown = database.set("show");
    for part in ["Bridge br0-ovs", "Port vdpa1", "type: dpdkvdpa", "no interface of PCI device"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(database.set("get Interface br0-ovs ofport"), "65534");
    assert_eq!(database.set("get Interface vdpa1 ofport"), "2");
    assert_eq!(database.set("get Interface pf0 ofport"), "-1");
    let arp = "table=0,arp,in_port=vdpa1,arp_op=1,arp_tpa=192.168.10.1 \
               actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],mod_dl_src:02:ac:10:ff:01:01,\
               load:0x2->NXM_OF_ARP_OP[],IN_PORT";
    database.ofctl(&["mod-flows", "br0-ovs", arp]);
    let nat = "table=0,ip,priority=10,in_port=vdpa1,nw_dst=48.0.0.0/8  \
               actions=ct(commit,table=1,nat(src=48.128.0.10))";
    database.ofctl(&["add-flow", "br0-ovs", nat]);
    let out = "table=1,ip,nw_src=48.128.0.10,nw_dst=48.0.0.0/8 \
               actions=mod_dl_src:02:ac:10:ff:01:01,mod_dl_dst:de:75:cc:e1:c6:85,output:pf0";
    database.ofctl(&["add-flow", "br0-ovs", out]);
    let rules = database.ofctl(&["--names", "--no-stats", "dump-flows", "br0-ovs"]);
    assert!(rules.contains("output:pf0") && rules.contains("actions=NORMAL"), "{rules}");
    let queues = database.appctl(&["dpif-netdev/pmd-rxq-show"]);
    assert!(queues.contains("port: vdpa1"), "{queues}");
    database.set("del-br br0-ovs");
    assert_eq!(database.appctl(&["ofproto/list"]).trim(), "br1-ovs");
    database.end(switch, Some(server));
}

#[test]
fn mtu_requests_and_the_address_of_a_bridge_reach_the_kernel() {
    if !Need::Tun.is_met() {
        return testing::skip(Need::Tun);
    }
    let Some(database) = Database::new() else { return };
    let server = database.serve();
    let [a, b] = hosts(&database.sandbox);
    let switch = database.switch();
    let ip = |words: &str| {
        let ended = database.tool("ip", &words.split(' ').collect::<Vec<_>>());
        assert!(ended.status.success(), "{words}: {}", ended.stderr);
        ended.stdout
    };
    let link = |name: &str| ip(&format!("link show {name}"));
    database.set("add-br br0 -- add-port br0 p1 -- add-port br0 p2");
    assert_eq!(a.transfers_to(&b, b"first").unwrap(), b"first");
    let number = database.set("get interface p1 ofport");

    for port in ["p1", "p2", "br0"] {
        database.set(&format!("set interface {port} mtu_request=9000"));
        assert!(link(port).contains("mtu 9000"), "{}", link(port));
        assert_eq!(database.set(&format!("get interface {port} mtu error")), "9000\n[]");
    }
    assert_eq!(database.set("get interface p1 ofport"), number);
    // The hosts now send longer packets, which only a port with larger buffers forwards.
    for host in [&a, &b] {
        let widen = || Ok(Command::new("ip").args(["link", "set", "eth0", "mtu", "9000"]).status());
        assert!(host.namespace().run(widen).unwrap().unwrap().success());
    }
    let bytes: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
    assert!(a.transfers_to(&b, &bytes).unwrap() == bytes);
    // A TAP device has a smaller maximum MTU than the column `mtu_request`.
    database.set("set interface br0 mtu_request=65535");
    let error = database.set("get interface br0 error");
    assert!(error.contains("the kernel refuses an MTU of 65535"), "{error}");
    assert_eq!(database.set("get interface br0 mtu"), "9000");
    // Without `mtu_request` an interface keeps its MTU.
    for port in ["p1", "br0"] {
        database.set(&format!("clear interface {port} mtu_request"));
        assert_eq!(database.set(&format!("get interface {port} mtu error")), "9000\n[]");
    }

    let first = database.set("get interface br0 mac_in_use");
    let address = "02:00:00:00:00:b0";
    database.set(&format!("set bridge br0 other_config:hwaddr=\"{address}\""));
    assert!(link("br0").contains(address), "{}", link("br0"));
    assert_eq!(database.set("get interface br0 mac_in_use"), format!("\"{address}\""));
    assert_eq!(database.set("get bridge br0 datapath_id"), "\"00000200000000b0\"");
    assert!(database.ofctl(&["show", "br0"]).contains(&format!("LOCAL(br0): addr:{address}")));
    database.set("remove bridge br0 other_config hwaddr");
    assert!(link("br0").contains(first.trim_matches('"')), "{first}: {}", link("br0"));
    assert_eq!(database.set("get interface br0 mac_in_use"), first);

    database.set("add-port br0 in0 -- set interface in0 type=internal mac=\"02:00:00:00:00:c0\"");
    assert!(link("in0").contains("02:00:00:00:00:c0"), "{}", link("in0"));
    let index = database.set("get interface in0 ifindex");
    let address = "02:00:00:00:00:c1";
    database.set(&format!("set interface in0 mac=\"{address}\""));
    assert!(link("in0").contains(address), "{}", link("in0"));
    assert_eq!(database.set("get interface in0 mac_in_use"), format!("\"{address}\""));
    assert!(database.ofctl(&["show", "br0"]).contains(&format!("(in0): addr:{address}")));
    assert_eq!(database.set("get interface in0 ifindex"), index, "the device is the same");
    assert_eq!(database.set("get interface in0 status:driver_name"), "tun");
    drop((a, b));
    database.end(switch, Some(server));
}

#[test]
fn ports_follow_the_database_and_their_columns_are_written_back() {
    let Some(database) = Database::new() else { return };
    let server = database.serve();
    let switch = database.switch();
    database.set("add-br br0 -- set bridge br0 other-config:datapath-id=00000000000000a1");
    assert_eq!(database.set("get bridge br0 datapath_id"), "\"00000000000000a1\"");
    database.set("set bridge br0 stp_enable=true");
    let ignored = database.set("get bridge br0 status:ignored");
    assert_eq!(ignored, "\"spanning tree (stp_enable)\"");
    database.set("set bridge br0 stp_enable=false");
    assert_eq!(database.set("get bridge br0 status"), "{}");
    let add = "add-port br0 p1 -- set interface p1 type=dummy ofport_request=7 \
               -- add-port br0 p2 -- set interface p2 type=dummy mac=\"02:00:00:00:00:0b\"";
    database.set(add);
    assert_eq!(database.set("get interface p1 ofport error"), "7\n[]");
    assert_eq!(database.set("get interface p2 mac_in_use"), "\"02:00:00:00:00:0b\"");
    let packet = "in_port(7),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x1234)";
    // The policer's bucket holds two packets, and is not filled while the clock is stopped.
    database.appctl(&["time/stop"]);
    database.set("set interface p1 ingress_policing_rate=1 ingress_policing_burst=1");
    for _ in 0..3 {
        database.appctl(&["netdev-dummy/receive", "p1", packet, "--len", "60"]);
    }
    await_some("the statistics", || {
        let sent = database.set("--if-exists get interface p2 statistics:tx_packets");
        (sent == "2").then_some(())
    });
    let dropped = database.set("get interface p1 statistics:rx_dropped");
    let policed = database.set("get interface p1 statistics:ovs_rx_qos_drops");
    assert_eq!((dropped.as_str(), policed.as_str()), ("1", "1"));
    assert_eq!(database.set("get interface p1 ofport"), "7");
    let refused =
        database.vsctl(&["add-port", "br0", "v0", "--", "set", "interface", "v0", "type=vxlan"]);
    let words = "Error detected while setting up 'v0': type `vxlan`: tunnels are not supported";
    assert!(refused.stderr.contains(words), "{refused:?}");
    let absent = database.vsctl(&["add-port", "br0", "eth-none"]);
    let words = "could not open network device eth-none (No such device)";
    assert!(absent.stderr.contains(words), "{absent:?}");
    let link = |words: &str| {
        let mut command = Command::new("ip");
        command.arg("link").args(words.split(' '));
        let ended = database.sandbox.start_command(command).end();
        assert!(ended.status.success(), "{ended:?}");
    };
    link("add eth-none up type veth peer name eth-peer");
    link("set eth-peer up");
    await_some("the interface", || {
        let error = database.set("get interface eth-none error");
        let state = database.set("get interface eth-none link_state ofport");
        (error == "[]" && state.starts_with("up\n") && !state.ends_with("-1")).then_some(())
    });
    database.set("del-port p1 -- del-port v0 -- del-port eth-none");
    link("del eth-none");
    let shown = database.ofctl(&["show", "br0"]);
    assert!(!shown.contains("(p1)") && shown.contains("(p2)"), "{shown}");
    let ours = database.sandbox.weir(&[
        "switch",
        "bridge",
        "add",
        "br9",
        "--rundir",
        &database.sandbox.path("run").display().to_string(),
    ]);
    assert!(ours.stderr.contains("change them by ovs-vsctl"), "{ours:?}");
    database.end(switch, Some(server));
}

#[test]
fn rules_survive_a_kill_of_the_database_and_port_numbers_a_kill_of_the_switch() {
    let Some(database) = Database::new() else { return };
    let server = database.serve();
    let switch = database.switch();
    database.set("add-br br0 -- set bridge br0 fail_mode=secure");
    for port in ["p1", "p2", "p3"] {
        database.set(&format!("add-port br0 {port} -- set interface {port} type=dummy"));
    }
    database.set("del-port p2");
    database.ofctl(&["add-flow", "br0", "in_port=p1,actions=output:p3"]);
    server.signal("KILL");
    server.end();
    await_words(&switch, "the switch goes on and tries again");
    assert!(database.ofctl(&["dump-flows", "br0"]).contains("output:"));
    let server = database.serve();
    database.set("add-port br0 p4 -- set interface p4 type=dummy");
    assert!(database.ofctl(&["dump-flows", "br0"]).contains("output:"));
    let numbers = || ["p1", "p3", "p4"].map(|p| database.set(&format!("get interface {p} ofport")));
    let before = numbers();
    assert_eq!(before, ["1", "3", "4"]);
    switch.signal("KILL");
    switch.end();
    let switch = database.switch();
    await_some("the ports", || {
        let shown = database.tool("ovs-ofctl", &["-t", "5", "show", "br0"]).stdout;
        ["1(p1)", "3(p3)", "4(p4)"].iter().all(|port| shown.contains(port)).then_some(())
    });
    database.set("set bridge br0 external-ids:a=b");
    assert_eq!(numbers(), before);
    database.end(switch, Some(server));
}

#[test]
fn openflow_versions_and_the_datapath_id_of_a_bridge_follow_the_database() {
    let Some(database) = Database::new() else { return };
    let server = database.serve();
    let switch = database.switch();
    database.set("add-br br0 -- set bridge br0 protocols=OpenFlow13");
    let refused = database.tool("ovs-ofctl", &["-t", "60", "show", "br0"]);
    assert!(refused.stderr.contains("version negotiation failed"), "{refused:?}");
    assert!(database.ofctl(&["-O", "OpenFlow13", "show", "br0"]).contains("(OF1.3)"));
    database.set("clear bridge br0 protocols");
    database.set("set bridge br0 other-config:datapath-id=00000000000000a2");
    assert!(database.ofctl(&["show", "br0"]).contains("dpid:00000000000000a2"));
    await_some("the datapath ID", || {
        let written = database.set("get bridge br0 datapath_id");
        (written == "\"00000000000000a2\"").then_some(())
    });
    database.end(switch, Some(server));
}

#[test]
fn a_second_switch_waits_for_the_lock_of_the_first_switch() {
    let Some(database) = Database::new() else { return };
    let server = database.serve();
    let first = database.switch();
    database.set("add-br br0");
    let other = database.sandbox.path("other").display().to_string();
    let words = ["switch", "run", "--rundir", &other, "--ovsdb", &database.socket()];
    let second = database.sandbox.start(&words);
    await_words(&second, "another process has the lock ovs_vswitchd");
    assert!(!database.sandbox.path("other/br0.mgmt").exists());
    first.signal("KILL");
    first.end();
    await_some("the bridge", || database.sandbox.path("other/br0.mgmt").exists().then_some(()));
    // The database still has the port number from the first switch, which created the device.
    database.set("set bridge br0 external-ids:a=b");
    std::fs::remove_dir_all(database.sandbox.path("run")).unwrap();
    std::fs::create_dir(database.sandbox.path("run")).unwrap();
    database.end(second, Some(server));
}

#[test]
fn the_switch_continues_after_an_unusable_schema_and_malformed_bytes() {
    let Some(database) = Database::new() else { return };
    let schema = std::fs::read_to_string(SCHEMA).unwrap().replace("\"fail_mode\"", "\"fail_way\"");
    database.create(&schema);
    let mut server = Command::new("ovsdb-server");
    server.args([
        "-vconsole:warn",
        "-vsyslog:off",
        "--log-file=/dev/null",
        "--unixctl=/dev/null/x",
    ]);
    server.arg(format!("--remote=p{}", database.socket())).arg("conf.db");
    server.arg(format!("--unixctl={}", database.sandbox.path("ovsdb.ctl").display()));
    let server = database.sandbox.start_command(server);
    await_some("the socket", || database.sandbox.path("run/db.sock").exists().then_some(()));
    let switch = database.switch();
    await_words(&switch, "lacks the column fail_mode of Bridge");
    server.signal("KILL");
    server.end();
    std::fs::remove_file(database.sandbox.path("run/db.sock")).unwrap();
    let listener = UnixListener::bind(database.sandbox.path("run/db.sock")).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    let mut asked = [0; 64];
    assert!(peer.read(&mut asked).unwrap() > 0);
    peer.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    await_words(&switch, "bytes that are no message of OVSDB");
    // A silent server does not delay the end of the switch.
    let (_silent, _) = listener.accept().unwrap();
    database.end(switch, None);
}
