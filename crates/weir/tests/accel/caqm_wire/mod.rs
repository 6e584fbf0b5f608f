//! CAQM as in openEuler's kernel, between Weir and a second implementation of a host
//! (docs/reference/caqm-wire.md). The tests check the negotiation by reserved bits, and every tag
//! in both directions.

mod host;

use crate::test_machine::TestMachine;
use crate::test_machine::transfer::accel;
use host::{ACK, CWR, ECE, Host, Receiver, SYN, Seen, Sender, answered, refused};
use port::{TapKind, TapPort};
use serde_json::Value;
use std::io::Write as _;
use std::process::Child;
use std::time::Duration;

/// Arguments that enable CAQM on Weir's host. The round trip over a TAP device is far below a
/// quarter of the standard round trip, 1 s.
const ENABLE: [&str; 15] = [
    "enable",
    "caqm",
    "--all",
    "--interface",
    "near:tap0",
    "--negotiation",
    "bits",
    "--loss",
    "reference",
    "--alpha-root",
    "0",
    "--theta",
    "0",
    "--rtt-standard",
    "1s",
];
/// Linux's initial window, in segments (TCP_INIT_CWND of include/net/tcp.h).
const FIRST_WINDOW: i64 = 10;

/// A TCP endpoint on Weir's host. The endpoint reads and drops all data. Each line of its input is
/// the number of bytes to write.
const PROGRAM: &str = "
import socket, sys, threading
def drain(c):
    while c.recv(65536): pass
port = int(sys.argv[2])
s = socket.socket()
if sys.argv[1] == 'server':
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(('10.9.0.1', port))
    s.listen()
    c = s.accept()[0]
else:
    s.connect(('10.9.0.2', port))
    c = s
c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
threading.Thread(target=drain, args=(c,), daemon=True).start()
for line in sys.stdin:
    c.sendall(b'x' * int(line))
";

struct Bench<'a> {
    machine: &'a TestMachine,
    host: Host,
}

impl<'a> Bench<'a> {
    fn new(machine: &'a TestMachine, enable: &[&str]) -> Self {
        let run = |program: &str, words: &[&str]| {
            let output = machine.run(program, words);
            assert_eq!(output.code, Some(0), "{words:?}: {}", output.stderr);
        };
        run("ip", &["netns", "add", "near"]);
        let tap = machine
            .namespace("near")
            .run(|| Ok(TapPort::create("tap0", TapKind::Tap).unwrap()))
            .unwrap();
        run("ip", &["-n", "near", "address", "add", "10.9.0.1/24", "dev", "tap0"]);
        run("ip", &["-n", "near", "link", "set", "tap0", "up", "gso_max_segs", "1"]);
        accel(machine, enable);
        let mut host = Host::new(tap);
        host.find_peer();
        Self { machine, host }
    }

    fn program(&self, role: &str, port: u16) -> Child {
        let port = port.to_string();
        let words = ["netns", "exec", "near", "python3", "-c", PROGRAM, role, &port];
        self.machine.start_with_input("ip", &words)
    }

    /// Starts a program that listens on Weir's host.
    fn serve(&mut self, port: u16) -> Program {
        let child = self.program("server", port);
        self.host.ports.1 = port;
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        let wanted = format!(":{port} ");
        let listens = || {
            self.machine
                .run("ip", &["netns", "exec", "near", "ss", "-tlnH"])
                .stdout
                .contains(&wanted)
        };
        while !listens() {
            assert!(std::time::Instant::now() < deadline, "nobody listens on {port}");
            std::thread::sleep(Duration::from_millis(10));
        }
        Program(child)
    }

    /// Sends a SYN with these flags and reserved bits, and returns the SYN-ACK.
    fn knock(&mut self, flags: u8, reserved: u8) -> Seen {
        self.host.expected = 0;
        self.host.ports.0 += 1;
        self.host.send(SYN | flags, reserved, 0, None);
        let seen = self.host.segment();
        assert_eq!(seen.flags & (SYN | ACK), SYN | ACK, "{seen:?}");
        assert!(seen.checksum_holds && seen.tag.is_none(), "{seen:?}");
        self.host.expected = seen.sequence.wrapping_add(1);
        seen
    }

    /// Returns the next data segment of Weir's host; skips repeated segments and pure ACKs.
    fn data(&mut self) -> Seen {
        loop {
            let seen = self.host.segment();
            assert!(seen.checksum_holds, "{seen:?}");
            if seen.payload > 0 && seen.sequence == self.host.expected {
                self.host.expected = seen.sequence.wrapping_add(seen.payload);
                return seen;
            }
        }
    }

    fn totals(&self) -> Value {
        self.machine.status()["caqm"]["totals"].clone()
    }
}

struct Program(Child);

impl Program {
    fn write(&mut self, bytes: u32) {
        let input = self.0.stdin.as_mut().unwrap();
        writeln!(input, "{bytes}").unwrap();
        input.flush().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tests the requests of Weir. Weir sends one segment after the other, so that no window limits the
/// flow. The test refuses every twentieth request, as a port would.
fn weir_asks(bench: &mut Bench<'_>, program: &mut Program) {
    let (mut model, mut receiver) = (Sender::new(FIRST_WINDOW), Receiver::default());
    for number in 0..200 {
        program.write(500);
        let seen = bench.data();
        assert_eq!(seen.tag, Some(model.request()), "segment {number}: {model:?}");
        let is_refused = number > 0 && number % 20 == 0;
        let tag = seen.tag.unwrap();
        receiver.data(if is_refused { refused(tag) } else { tag });
        let answer = receiver.ack();
        bench.host.send(ACK, 0, 0, Some(answer));
        model.answer(answered(answer), false);
    }
    assert!(!model.start && model.cwnd < FIRST_WINDOW, "{model:?}");
}

/// Tests the answers of Weir while the second host sends: every answer must equal the answer that
/// the second host computes.
fn weir_answers(bench: &mut Bench<'_>) {
    let (mut model, mut receiver) = (Sender::new(FIRST_WINDOW), Receiver::default());
    let mut told = 0;
    for number in 0..200_u32 {
        let asks = model.request();
        let arrives = if number > 20 && number % 7 == 0 { refused(asks) } else { asks };
        bench.host.send(ACK, 0, 500, Some(arrives));
        receiver.data(arrives);
        let seen = loop {
            let seen = bench.host.segment();
            if seen.payload == 0 && seen.acknowledgement == bench.host.next {
                break seen;
            }
        };
        let expected = receiver.ack();
        match seen.tag {
            Some(tag) => assert_eq!(tag, expected, "segment {number}"),
            None => assert_eq!(answered(expected), 0, "segment {number}"),
        }
        told += answered(expected);
        model.answer(answered(expected), true);
    }
    assert!(told != 0 && !model.start, "{model:?}");
}

#[test]
fn a_second_implementation_as_client_agrees_tag_by_tag() {
    let Some(machine) = TestMachine::new() else { return };
    let mut bench = Bench::new(&machine, &ENABLE);
    let mut program = bench.serve(5870);
    assert_eq!(bench.knock(0, 1).reserved, 2);
    bench.host.send(ACK, 0, 0, Some(Receiver::default().ack()));
    weir_asks(&mut bench, &mut program);
    weir_answers(&mut bench);
    let totals = bench.totals();
    assert_eq!(totals["by_bits"], 1, "{totals}");
    assert_eq!(totals["implausible"], 0, "{totals}");
    accel(&machine, &["disable"]);
    assert_eq!(machine.pinned(), "");
    // Without CAQM the connection continues without tags.
    program.write(500);
    let seen = bench.data();
    assert_eq!((seen.tag, seen.reserved), (None, 0), "{seen:?}");
}

#[test]
fn a_second_implementation_as_server_agrees_tag_by_tag() {
    let Some(machine) = TestMachine::new() else { return };
    let mut bench = Bench::new(&machine, &ENABLE);
    bench.host.ports = (5871, 0);
    let mut program = Program(bench.program("client", 5871));
    let syn = bench.host.segment();
    assert_eq!((syn.flags, syn.reserved, syn.tag), (SYN, 1, None), "{syn:?}");
    assert!(syn.checksum_holds, "{syn:?}");
    bench.host.ports = (5871, syn.ports.0);
    bench.host.expected = syn.sequence.wrapping_add(1);
    bench.host.send(SYN | ACK, 2, 0, None);
    let third = bench.host.segment();
    assert_eq!((third.flags, third.reserved), (ACK, 0), "{third:?}");
    assert_eq!(third.tag, Some(Receiver::default().ack()), "{third:?}");
    weir_answers(&mut bench);
    weir_asks(&mut bench, &mut program);
    assert_eq!(bench.totals()["by_bits"], 1);
}

/// The peer does not support the option: the bits decide, in both roles.
#[test]
fn an_end_that_offers_an_option_and_bits_agrees_by_bits_with_an_older_peer() {
    let Some(machine) = TestMachine::new() else { return };
    let ways = ENABLE.map(|word| if word == "bits" { "both" } else { word });
    let mut bench = Bench::new(&machine, &ways);
    let mut program = bench.serve(5868);
    assert_eq!(bench.knock(0, 1).reserved, 2);
    bench.host.send(ACK, 0, 0, Some(Receiver::default().ack()));
    weir_asks(&mut bench, &mut program);
    drop(program);
    bench.host.ports = (5869, 0);
    let mut program = Program(bench.program("client", 5869));
    let syn = bench.host.segment();
    assert_eq!(syn.reserved, 1, "{syn:?}");
    bench.host.ports = (5869, syn.ports.0);
    bench.host.expected = syn.sequence.wrapping_add(1);
    bench.host.send(SYN | ACK, 2, 0, None);
    assert_eq!(bench.host.segment().tag, Some(Receiver::default().ack()));
    weir_asks(&mut bench, &mut program);
    assert_eq!(bench.totals()["by_bits"], 2);
}

/// Tests a client without CAQM, clients that ask for accurate ECN or set other bits, and clients
/// whose tags or bits a network removes.
#[test]
fn other_reserved_bits_do_not_negotiate_caqm() {
    let Some(machine) = TestMachine::new() else { return };
    let mut bench = Bench::new(&machine, &ENABLE);
    for (number, (flags, reserved)) in
        [(0, 0), (ECE | CWR, 1), (0, 2), (0, 3), (0, 15), (0, 9)].into_iter().enumerate()
    {
        let mut program = bench.serve(5872 + number as u16);
        let seen = bench.knock(flags, reserved);
        assert_eq!(seen.reserved & 2, 0, "{flags} {reserved}: {seen:?}");
        bench.host.send(ACK, 0, 0, None);
        program.write(500);
        assert_eq!(bench.data().tag, None, "{flags} {reserved}");
        bench.host.send(ACK, 0, 0, None);
    }
    // The client offered CAQM, and the path lost its first tag.
    let mut program = bench.serve(5880);
    assert_eq!(bench.knock(0, 1).reserved, 2);
    bench.host.send(ACK, 0, 0, None);
    program.write(500);
    assert_eq!(bench.data().tag, None);
    bench.host.send(ACK, 0, 0, None);
    assert_eq!(bench.totals()["negotiated"], 0);
}

/// Tests networks and servers that write other reserved bits into the SYN-ACK.
#[test]
fn a_client_accepts_the_servers_bit_and_no_other_bits() {
    let Some(machine) = TestMachine::new() else { return };
    let mut bench = Bench::new(&machine, &ENABLE);
    for (number, reserved) in [0, 1, 3, 6, 15].into_iter().enumerate() {
        let port = 5890 + number as u16;
        bench.host.ports = (port, 0);
        let mut program = Program(bench.program("client", port));
        let syn = bench.host.segment();
        assert_eq!(syn.reserved, 1, "{syn:?}");
        bench.host.ports = (port, syn.ports.0);
        bench.host.expected = syn.sequence.wrapping_add(1);
        bench.host.send(SYN | ACK, reserved, 0, None);
        assert_eq!(bench.host.segment().tag, None, "{reserved}");
        program.write(500);
        assert_eq!(bench.data().tag, None, "{reserved}");
        bench.host.send(ACK, 0, 0, None);
    }
    let totals = bench.totals();
    assert_eq!((&totals["negotiated"], &totals["declined"]), (&0.into(), &5.into()), "{totals}");
}

/// The ends agree, but the path drops packets with tags. After a few attempts the host must send
/// the handshake's last packet and the data without tags, and the connection continues.
#[test]
fn a_connection_continues_without_tags_if_the_path_drops_tagged_packets() {
    let Some(machine) = TestMachine::new() else { return };
    let mut bench = Bench::new(&machine, &ENABLE);
    bench.host.ports = (5866, 0);
    let mut program = Program(bench.program("client", 5866));
    let syn = bench.host.segment();
    bench.host.ports = (5866, syn.ports.0);
    bench.host.expected = syn.sequence.wrapping_add(1);
    let mut tagged = Vec::new();
    for _ in 0..4 {
        bench.host.send(SYN | ACK, 2, 0, None);
        bench.host.next = bench.host.next.wrapping_sub(1);
        tagged.push(bench.host.segment().tag.is_some());
        // The kernel answers at most two repeated SYN-ACKs a second (tcp_invalid_ratelimit).
        std::thread::sleep(Duration::from_millis(600));
    }
    bench.host.next = bench.host.next.wrapping_add(1);
    assert_eq!(tagged, [true, true, false, false]);
    program.write(500);
    let mut lost = 0;
    let seen = loop {
        let seen = bench.host.segment();
        match seen.tag {
            Some(_) => lost += 1,
            None if seen.payload > 0 => break seen,
            None => {}
        }
    };
    assert!((1..64).contains(&lost), "{lost}");
    bench.host.expected = seen.sequence.wrapping_add(seen.payload);
    bench.host.send(ACK, 0, 0, None);
    program.write(500);
    assert_eq!(bench.data().tag, None);
    // The ACKs of data have no tags, either.
    bench.host.send(ACK, 0, 500, None);
    let seen = loop {
        let seen = bench.host.segment();
        if seen.payload == 0 && seen.acknowledgement == bench.host.next {
            break seen;
        }
    };
    assert_eq!(seen.tag, None);
}

/// The second host does not answer the first two SYNs; the third SYN must not have the bit.
#[test]
fn the_third_syn_without_an_answer_carries_no_offer() {
    let Some(machine) = TestMachine::new() else { return };
    let mut bench = Bench::new(&machine, &ENABLE);
    bench.host.ports = (5899, 0);
    let _program = Program(bench.program("client", 5899));
    let mut bits = Vec::new();
    while bits.len() < 3 {
        if let Some(seen) = bench.host.segment_within(Duration::from_secs(20)) {
            bits.push(seen.reserved);
        }
    }
    assert_eq!(bits, [1, 1, 0]);
}

/// Both ends are Weir's, and offer CAQM by the option and by bits: the option decides.
#[test]
fn caqm_ends_that_offer_an_option_and_bits_agree_by_the_option() {
    let Some(machine) = TestMachine::new() else { return };
    let pair = crate::test_machine::pair::Pair::lay(&machine);
    let interfaces = ["--interface", "near:eth0", "--interface", "far:eth0"];
    let ways = ["--negotiation", "both", "--trusts-path"];
    accel(&machine, &[&["enable", "caqm", "--all"][..], &interfaces, &ways].concat());
    assert_eq!(pair.transfer(5900, &[]), "caqm");
    let totals = machine.status()["caqm"]["totals"].clone();
    assert_eq!((&totals["negotiated"], &totals["by_bits"]), (&4.into(), &0.into()), "{totals}");
    accel(&machine, &["set", "negotiation=bits", "trusts_path=off"]);
    assert_eq!(pair.transfer(5901, &[]), "caqm");
    let totals = machine.status()["caqm"]["totals"].clone();
    assert_eq!((&totals["negotiated"], &totals["by_bits"]), (&8.into(), &4.into()), "{totals}");
    assert_eq!(totals["implausible"], 0, "{totals}");
}
