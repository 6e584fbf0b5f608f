//! Compares `weir perf`'s counts of datagrams with the counts of an emulated link, which decides
//! which datagrams are lost. Also tests that `weir perf` names a full link as the limit.

use crate::support::{Running, Sandbox, await_some, is_installed};
use serde_json::Value;
use std::process::Command;
use testing::Attempt;

/// The counts of both ends for one run, and the link's own counts.
#[derive(Debug)]
struct Counted {
    client: Value,
    server: Value,
    link: Value,
    /// Datagrams for which the receiving socket had no room, as the kernel counts them. The
    /// receiver waited long for a CPU; these datagrams are lost although the model did not drop
    /// them.
    no_room: u64,
}

/// Tests all impairments at once. The link reports the datagrams that the link held back, dropped
/// or duplicated.
#[test]
fn counts_of_loss_reordering_and_duplicates_equal_the_counts_of_the_link() {
    let disorder = ["--loss", "2%", "--reorder", "3%,2ms", "--duplicate", "1%", "--delay", "1ms"];
    let Some(counted) = measured(&disorder, "up") else { return };
    assert!(counted.link("dropped_loss") > 0 && counted.link("duplicated") > 0);
    assert!(counted.of_datagrams("reordered") > 0);
}

#[test]
fn loss_without_other_impairments_is_counted_exactly() {
    let Some(counted) = measured(&["--loss", "5%", "--delay", "1ms"], "up") else { return };
    assert_eq!(counted.of_datagrams("reordered") + counted.of_datagrams("duplicates"), 0);
}

#[test]
fn a_link_without_impairments_loses_and_reorders_no_datagram() {
    let Some(counted) = measured(&["--delay", "1ms"], "up") else { return };
    assert_eq!(counted.link("dropped_loss") + counted.link("dropped_overflow"), 0);
    assert_eq!(counted.of_datagrams("reordered") + counted.of_datagrams("duplicates"), 0);
}

/// Tests the reverse direction, in which the server sends.
#[test]
fn loss_in_the_reverse_direction_is_counted() {
    let disorder = ["--loss", "2%", "--reorder", "3%,2ms", "--duplicate", "1%", "--delay", "1ms"];
    let Some(counted) = measured(&disorder, "down") else { return };
    assert!(counted.link("dropped_loss") > 0);
}

/// CUBIC fills a queue of 26 ms on a path of 10 ms, so that packets wait in the queue nearly all
/// the time.
#[test]
fn a_sender_that_fills_the_link_is_limited_by_a_full_link() {
    if !can_run() {
        return;
    }
    testing::undisturbed("sender over a full link", |_| {
        let sandbox = Sandbox::new().unwrap();
        let far = Far::of(&sandbox);
        let name = format!("test-{}-full", std::process::id());
        let link = ["--rate", "20mbit", "--delay", "5ms", "--queue", "droptail:64KiB"];
        let running = start_link(&sandbox, &far, &name, &link);
        let server = serve(&sandbox, &far);
        let client = sandbox.weir(&["perf", "client", "10.9.8.2", "-t", "3", "-C", "cubic"]);
        assert!(client.status.success(), "{client:?}");
        let server = server.end();
        assert!(server.status.success(), "{server:?}");
        running.signal("INT");
        running.end();
        far.0.signal("KILL");
        let words: Vec<&str> = client.stdout.split_whitespace().collect();
        let words = words.join(" ");
        if words.contains("this machine's CPU was the limit") {
            return Attempt::Invalid(words);
        }
        match words.contains(": limited by a full link ") {
            true => Attempt::Right(()),
            false => Attempt::Wrong(words),
        }
    });
}

impl Counted {
    /// Checks that the link's and the receiver's counts agree for every datagram.
    ///
    /// The direction carries the test's datagrams and a few other frames, of the control connection
    /// and of neighbour discovery. The other frames are smaller than a datagram or few, so the
    /// number of bytes shows how many frames are datagrams.
    fn holds(&self) -> Result<(), String> {
        let [sent, received] = [self.of_datagrams("count"), self.of_datagrams("received")];
        let (lost, duplicates) = (self.of_datagrams("lost"), self.of_datagrams("duplicates"));
        let story = format!("link {} client {}", self.link, self.client["weir"]["streams"]);
        let demand = |holds: bool, what: String| {
            if holds { Ok(()) } else { Err(format!("{what}; {story}")) }
        };
        // The receiver's own count: every datagram up to the highest number has arrived or is lost.
        demand(sent == received + lost, format!("{sent} sent, {received} received, {lost} lost"))?;
        let (dropped, others_dropped) = self.of_test("dropped_loss");
        let (doubled, others_doubled) = self.of_test("duplicated");
        // If the receiver's socket had no room for a datagram, for its copy, or for both, the
        // receiver counts no duplicate. The pair's losses are then one less than the number of
        // datagrams without room.
        let pairs = doubled.checked_sub(duplicates).filter(|pairs| *pairs <= self.no_room);
        demand(
            pairs.is_some(),
            format!("{duplicates} duplicates, {doubled} ordered; {others_doubled} others"),
        )?;
        let pairs = pairs.unwrap_or_default();
        // On a stalled machine frames of the test and of other traffic are lost before the
        // emulator, and datagrams at the receiver. Only these datagrams are lost without the
        // model's decision.
        let (outside, no_room) = (self.link("lost_outside_model"), self.no_room);
        // The receiver cannot count the last datagrams as lost if the socket had no room for them.
        let unseen = no_room.min(self.sent().saturating_sub(sent));
        let unordered = (lost + pairs + unseen).checked_sub(dropped + no_room);
        demand(
            unordered.is_some_and(|some| some <= outside + unseen && outside <= some + OTHERS),
            format!(
                "{lost} lost, {dropped} ordered, {no_room} without room, {pairs} of pairs, \
                 {outside} outside the model; {others_dropped} others"
            ),
        )?;
        // A delayed datagram counts as reordered only if a datagram sent later arrived before it.
        // The delayed copy of a datagram that arrived in time counts as a duplicate.
        let (held, _) = self.of_test("reordered");
        let reordered = self.of_datagrams("reordered");
        demand(
            reordered <= held && held - reordered <= doubled + no_room + held / 20,
            format!("{reordered} reordered, {held} held back"),
        )?;
        // The client's report contains the receiver's counts, whichever end receives.
        let server = &self.server["weir"]["streams"][0]["datagrams"];
        let is_same = *server == self.client["weir"]["streams"][0]["datagrams"];
        demand(is_same, format!("the server counts {server}"))?;
        eprintln!(
            "sent {}, counted {sent}; {no_room} without room, {outside} outside the model; ordered and counted: {dropped}/{lost} lost, {doubled}/{duplicates} \
             twice, {held}/{reordered} late",
            self.sent(),
        );
        Ok(())
    }

    fn of_datagrams(&self, key: &str) -> u64 {
        self.client["weir"]["streams"][0]["datagrams"][key].as_u64().unwrap()
    }

    fn sent(&self) -> u64 {
        self.client["end"]["sum_sent"]["packets"].as_u64().unwrap()
    }

    fn link(&self, key: &str) -> u64 {
        let value = &self.link[key];
        value.as_u64().or(value["frames"].as_u64()).unwrap()
    }

    /// Returns the counts of frames with a datagram of the test, and of other frames.
    fn of_test(&self, key: &str) -> (u64, u64) {
        let value = &self.link[key];
        let (frames, bytes) = (value["frames"].as_u64().unwrap(), value["bytes"].as_u64().unwrap());
        let datagrams = (bytes - SMALLEST * frames) / (FRAME - SMALLEST);
        (datagrams, frames - datagrams)
    }
}

/// Repeats the run until its receiver had enough CPU time. A datagram for which the receiver's
/// socket had no room counts as lost, unless all later datagrams were dropped, too. If more
/// datagrams had no room than are lost or belong to a duplicated pair, the counts cannot be
/// compared.
fn measured(link: &[&str], direction: &str) -> Option<Counted> {
    if !can_run() {
        return None;
    }
    testing::undisturbed("datagrams over an emulated link", |_| {
        let counted = run(link, direction);
        let (lost, no_room) = (counted.of_datagrams("lost"), counted.no_room);
        if no_room > lost + counted.of_test("duplicated").0 {
            return Attempt::Invalid(format!("{no_room} datagrams found no room, {lost} are lost"));
        }
        // The test may have restored the link too late, so that datagrams arrived after the test.
        match counted.holds() {
            Ok(()) => Attempt::Right(counted),
            Err(why) => Attempt::Wrong(why),
        }
    })
}

fn run(link: &[&str], direction: &str) -> Counted {
    let sandbox = Sandbox::new().unwrap();
    let far = Far::of(&sandbox);
    let name = format!("test-{}-{direction}{}", std::process::id(), link.concat().len());
    let link = [&["--queue", "droptail:64MiB"][..], link].concat();
    let running = start_link(&sandbox, &far, &name, &link);
    let server = serve(&sandbox, &far);
    let mut words = vec!["perf", "client", "10.9.8.2", "-J", "-u", "-b", RATE, "-t", "4"];
    words.extend(["-l", LENGTH, "-w", "8M", "--no-probes"]);
    words.extend((direction == "down").then_some("-R"));
    let client = sandbox.start(&words);
    let side = if direction == "down" { "ba" } else { "ab" };
    // The client ends in an orderly way, because datagrams that the link delayed would otherwise
    // arrive after the test. When a receiving client stops counting, only the last datagrams are in
    // flight. The receiver does not count these datagrams, neither as received nor as lost.
    await_some("a quarter of the test", || {
        let shown = sandbox.weir(&["link", "show", &name, "--json"]);
        let shown: Value = serde_json::from_str(&shown.stdout).ok()?;
        let arrived = shown[side]["statistics"]["arrived"]["frames"].as_u64()?;
        (arrived > QUARTER).then_some(())
    });
    let calm = ["link", "set", &name, "loss=0%", "reorder=0%,0ms", "duplicate=0%"];
    let set = sandbox.weir(&calm);
    assert!(set.status.success(), "{set:?}");
    let client = client.end();
    assert!(client.status.success(), "{client:?}");
    let table = match direction {
        "down" => sandbox.inside(|| std::fs::read_to_string("/proc/thread-self/net/snmp")),
        _ => std::fs::read_to_string(format!("/proc/{}/net/snmp", far.0.pid())),
    };
    let server = server.end();
    assert!(server.status.success(), "{server:?}");
    running.signal("INT");
    let ended = running.end();
    let mut report: Value = serde_json::from_str(&ended.stdout).unwrap();
    report[side]["statistics"].as_object_mut().unwrap().remove("trace");
    far.0.signal("KILL");
    Counted {
        client: serde_json::from_str(&client.stdout).unwrap(),
        server: serde_json::from_str(&server.stdout).unwrap(),
        link: report[side]["statistics"].take(),
        no_room: receive_errors(&table.unwrap()),
    }
}

/// Whether a sandbox can have a second namespace. Prints a note otherwise.
fn can_run() -> bool {
    if Sandbox::new().is_none() {
        return false;
    }
    for program in ["nsenter", "unshare"] {
        if !is_installed(program) {
            testing::skip(testing::Need::Program(program));
            return false;
        }
    }
    true
}

/// Starts a link between the sandbox and the far namespace, and waits until the link is up.
fn start_link(sandbox: &Sandbox, far: &Far, name: &str, link: &[&str]) -> Running {
    let far_end = format!("pid:{}:east", far.0.pid());
    let mut words = vec!["link", "up", "--a", "west", "--b", &far_end, "--name", name, "--json"];
    words.extend(["--address-a", "10.9.8.1/24", "--address-b", "10.9.8.2/24"]);
    words.extend(["--no-real-time", "--seed", "7"]);
    words.extend(link);
    let running = sandbox.start(&words);
    await_some("the link", || {
        let (stdout, stderr) = running.output_so_far();
        format!("{stdout}{stderr}").contains("is up").then_some(())
    });
    running
}

/// Starts a server for one test in the far namespace, and waits until the server listens.
fn serve(sandbox: &Sandbox, far: &Far) -> Running {
    let mut server = far.command(env!("CARGO_BIN_EXE_weir"));
    server.args(["perf", "server", "-1", "-J"]);
    let server = sandbox.start_command(server);
    await_some("the server", || server.listens(5201).then_some(()));
    server
}

/// Reads `RcvbufErrors` of UDP from the kernel's table of counters: a line of names, then a line of
/// values.
fn receive_errors(table: &str) -> u64 {
    let mut rows = table.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (rows.next().unwrap(), rows.next().unwrap());
    let mut columns = names.split(' ').zip(values.split(' '));
    columns.find(|(name, _)| *name == "RcvbufErrors").unwrap().1.parse().unwrap()
}

/// A second namespace, which exists as long as a process sleeps in the namespace.
struct Far(Running);

impl Far {
    fn of(sandbox: &Sandbox) -> Self {
        let mut command = Command::new("unshare");
        command.args(["--net", "sleep", "300"]);
        let far = Self(sandbox.start_command(command));
        await_some("a second namespace", || {
            let name = std::fs::read_to_string(format!("/proc/{}/comm", far.0.pid())).ok()?;
            (name.trim() == "sleep").then_some(())
        });
        far
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.0.pid())).arg(program);
        command
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let _ = self.0.child.kill();
        let _ = self.0.child.wait();
    }
}

/// A rate that unoptimised builds sustain too.
const RATE: &str = "100M";
const LENGTH: &str = "1400";
/// The approximate number of datagrams in the first of four seconds. A busy machine has the other
/// three seconds to change the link.
const QUARTER: u64 = 9_000;
/// Frames of neighbour discovery and of the control connection that a short loss may hit as well.
const OTHERS: u64 = 20;
/// Size of a frame of the test, with the headers of UDP, IPv4 and Ethernet.
const FRAME: u64 = 1400 + 8 + 20 + 14;
/// Size of the smallest frame of other traffic, which has only the headers of ARP.
const SMALLEST: u64 = 42;
