//! A recording for the tests of rules: one connection of 400 Mbit/s from this machine, over `eth0`
//! of 1 Gbit/s and a round trip of 20 ms. The machine has two cores, and nothing is wrong. Samples
//! are a second apart, for three seconds. Each test changes the facts that it needs.

use super::{Answer, Outcome, Rule, settled};
use crate::recording::{
    Attempt, Connection, ConnectionState, CoreTimes, Holder, Interface, InterfaceCounters, Machine,
    Origin, Path, Period, Recording, Sample, Softnet, Stall, Task, Tcp,
};
use crate::view::View;
use crate::{Diagnosis, Question, diagnose};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use units::{Bytes, Rate, Span};

pub(crate) struct Sketch {
    recording: Recording,
}

impl Sketch {
    pub(crate) fn new() -> Self {
        let mut machine = Machine { cores: vec![0, 1], ..Machine::default() };
        let eth0 = Interface {
            index: 2,
            enabled: true,
            state: "up".to_owned(),
            mtu: Some(Bytes::new(1500)),
            device: true,
            speed: Some(Rate::from_mbit(1000)),
            full_duplex: Some(true),
            ..Interface::default()
        };
        machine.interfaces.insert("eth0".to_owned(), eth0);
        let path = Path { interface: Some("eth0".to_owned()), ..Path::default() };
        machine.paths.insert("10.0.0.2".parse().unwrap(), path);
        let samples = (0..SAMPLES).map(sample).collect();
        let period = Period { label: "sketch".to_owned(), samples, ..Period::default() };
        let mut recording = Recording::new(machine);
        recording.origin = Origin::Synthetic;
        recording.periods.push(period);
        Self { recording }
    }

    /// Replaces the samples by `count` new samples.
    pub(crate) fn repeat_samples(&mut self, count: u64) {
        self.recording.periods[0].samples = (0..count).map(sample).collect();
    }

    /// Builds a recording without connections.
    pub(crate) fn idle() -> Self {
        Self::new().each(|_, sample| {
            sample.connections.clear();
            sample.tasks.clear();
        })
    }

    /// Builds a sender that a window of 32 KiB holds for 90 % of the time.
    pub(crate) fn closed_window() -> Self {
        Self::new().tcp(|at, tcp| {
            tcp.window_limited = Some(Span::from_millis(900 * at));
            tcp.peer_window = Some(Bytes::new(32_768));
        })
    }

    /// Changes each sample. `change` gets the seconds since the start, and the sample.
    pub(crate) fn each(mut self, change: impl Fn(u64, &mut Sample)) -> Self {
        for (at, sample) in self.recording.periods[0].samples.iter_mut().enumerate() {
            change(at as u64, sample);
        }
        self
    }

    pub(crate) fn sender(self, change: impl Fn(u64, &mut Connection)) -> Self {
        self.each(|at, sample| change(at, &mut sample.connections[0]))
    }

    pub(crate) fn tcp(self, change: impl Fn(u64, &mut Tcp)) -> Self {
        self.sender(|at, connection| change(at, &mut connection.tcp))
    }

    /// Adds the other end, as over loopback: an empty queue of 6 MB.
    pub(crate) fn with_receiver(self, change: impl Fn(u64, &mut Connection)) -> Self {
        self.each(|at, sample| {
            let sender = &sample.connections[0];
            let mut receiver = Connection {
                local: sender.remote,
                remote: sender.local,
                cookie: 2,
                holders: vec![Holder { pid: 8, name: "reader".to_owned(), ..Holder::default() }],
                receive_limit: Some(Bytes::new(6_000_000)),
                send_queue: Bytes::ZERO,
                tcp: Tcp {
                    bytes_received: sender.tcp.bytes_acked,
                    bytes_acked: Some(Bytes::ZERO),
                    receive_rtt: Some(Span::from_millis(20)),
                    own_window: Some(Bytes::new(3_000_000)),
                    ..Tcp::default()
                },
                ..sender.clone()
            };
            change(at, &mut receiver);
            sample.connections.push(receiver);
            sample.tasks.push(task(at, 8, "reader", 30));
        })
    }

    /// Makes this machine the receiver: the sender is another machine.
    pub(crate) fn receiving(self, change: impl Fn(u64, &mut Connection)) -> Self {
        self.with_receiver(change).each(|_, sample| {
            let receiver = sample.connections.remove(1);
            sample.connections[0] =
                Connection { local: receiver.remote, remote: receiver.local, ..receiver };
            // The connection has the route to the far end.
            let one = &mut sample.connections[0];
            std::mem::swap(&mut one.local, &mut one.remote);
            (one.local, one.remote) =
                ("10.0.0.1:5201".parse().unwrap(), "10.0.0.2:5000".parse().unwrap());
        })
    }

    pub(crate) fn machine(mut self, change: impl FnOnce(&mut Machine)) -> Self {
        change(&mut self.recording.machine);
        self
    }

    pub(crate) fn interface(self, change: impl FnOnce(&mut Interface)) -> Self {
        self.machine(|machine| change(machine.interfaces.get_mut("eth0").unwrap()))
    }

    /// Sets the CPU time of the thread, in percent of a core.
    pub(crate) fn task(self, pid: u32, percent: u64) -> Self {
        self.each(|at, sample| {
            for one in sample.tasks.iter_mut().filter(|one| one.pid == pid) {
                *one = task(at, pid, &one.name.clone(), percent);
            }
        })
    }

    /// Sets the core's time in percent: user, system, softirq, stolen; the rest is idle.
    pub(crate) fn core(self, core: usize, [user, system, softirq, steal]: [u64; 4]) -> Self {
        self.each(|at, sample| {
            sample.cores.insert(core, times(at, [user, system, softirq, steal]));
        })
    }

    pub(crate) fn counter(self, name: &str, per_second: u64) -> Self {
        self.each(|at, sample| {
            sample.counters.insert(name.to_owned(), 1000 + at * per_second);
        })
    }

    /// Sets the test of the period.
    pub(crate) fn attempt(mut self, attempt: Attempt) -> Self {
        self.recording.periods[0].attempt = Some(attempt);
        self
    }

    pub(crate) fn recording(&self) -> &Recording {
        &self.recording
    }

    /// Returns the rule's result for the connection or the machine, after the table of precedence.
    pub(crate) fn judge(&self, rule: Rule) -> Outcome {
        self.check_words();
        let view = View::of(&self.recording, &self.recording.periods[0]).unwrap();
        match (rule.flow, view.flows.first()) {
            (Some(_), Some(flow)) => chosen(settled(&[flow], &view).0.remove(0), rule),
            _ => self.on_machine(rule),
        }
    }

    pub(crate) fn on_machine(&self, rule: Rule) -> Outcome {
        self.check_words();
        let view = View::of(&self.recording, &self.recording.periods[0]).unwrap();
        let flows: Vec<_> = view.flows.iter().collect();
        chosen(settled(&flows, &view).1, rule)
    }

    /// Shows each sketch of each rule within a small terminal, also with the longest names of
    /// programs and with addresses of IPv6. Each percentage must name its whole.
    fn check_words(&self) {
        let mut long = self.recording.clone();
        let wide = |address: SocketAddr| -> SocketAddr {
            let IpAddr::V4(ip) = address.ip() else { return address };
            let [a, b, c, d] = ip.octets().map(u16::from);
            let ip = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0x1000 + a, 0xffff, b, c, 0x1000 + d);
            SocketAddr::new(ip.into(), address.port())
        };
        let paths = std::mem::take(&mut long.machine.paths).into_iter();
        let paths = paths.map(|(ip, path)| (wide(SocketAddr::new(ip, 0)).ip(), path));
        long.machine.paths = paths.collect();
        for sample in long.periods.iter_mut().flat_map(|period| &mut period.samples) {
            for connection in &mut sample.connections {
                connection.local = wide(connection.local);
                connection.remote = wide(connection.remote);
                for holder in &mut connection.holders {
                    holder.name = "kworker/u256:12".to_owned();
                    holder.pid += 4_000_000;
                }
            }
            for task in sample.tasks.iter_mut().chain(&mut sample.processes) {
                task.name = "kworker/u256:12".to_owned();
                task.pid += 4_000_000;
                task.tid += 4_000_000;
            }
        }
        for recording in [&self.recording, &long] {
            for question in [Question::Machine, Question::Flow] {
                check_diagnosis(&diagnose(recording, question));
            }
        }
    }

    /// Returns the share of the missing speed that the rule's cause explains. The cause must hold.
    pub(crate) fn holds(&self, rule: Rule) -> f64 {
        match self.judge(rule) {
            Outcome::Holds(finding) => finding.explains.expect("it limits"),
            other => panic!("{} does not hold: {other:?}", rule.cause),
        }
    }

    /// Returns the share that a cause of the machine explains; 0 if the cause limits nothing.
    pub(crate) fn holds_machine(&self, rule: Rule) -> Option<f64> {
        match self.on_machine(rule) {
            Outcome::Holds(finding) => finding.explains.or(Some(0.0)),
            other => panic!("{} does not hold: {other:?}", rule.cause),
        }
    }

    pub(crate) fn machine_holds_not(&self, rule: Rule) {
        let outcome = self.on_machine(rule);
        assert!(outcome.finding().is_none(), "{}: {outcome:?}", rule.cause);
    }

    pub(crate) fn holds_not(&self, rule: Rule) {
        let outcome = self.judge(rule);
        assert!(outcome.finding().is_none(), "{}: {outcome:?}", rule.cause);
    }
}

fn check_diagnosis(diagnosis: &Diagnosis) {
    let page = crate::output::text(diagnosis, 80, false);
    let rows: usize = page.lines().map(|line| line.chars().count().div_ceil(80).max(1)).sum();
    assert!(rows <= 12, "{rows} rows: {page}");
    let is_command = |line: &str| line.starts_with("  # ");
    let fits = |line: &str| is_command(line) || line.chars().count() <= 80;
    assert!(page.lines().all(fits), "{page}");
    // The text has the whole verdict, apart from names that are longer than a line.
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(&page).starts_with(&words(&diagnosis.verdict.sentence)), "{page}");
    let flows = diagnosis.periods.iter().flat_map(|period| &period.flows);
    let causes = flows.flat_map(|flow| &flow.causes);
    let machine = diagnosis.periods.iter().flat_map(|period| &period.machine);
    for finding in causes.chain(machine).map(|found| &found.finding) {
        let evidence = finding.evidence.iter().map(|one| format!("{}: {}", one.signal, one.value));
        for text in evidence.chain([finding.sentence.clone()]) {
            assert!(
                !text.contains('%') || text.contains("% of ") || text.contains(" of "),
                "{text}"
            );
        }
    }
}

fn chosen(answers: Vec<Answer>, rule: Rule) -> Outcome {
    let mut answers = answers.into_iter();
    answers
        .find(|answer| answer.row.rule.cause == rule.cause)
        .expect("a cause of the table")
        .outcome
}

fn sample(at: u64) -> Sample {
    let stall = Stall { some: Span::ZERO, full: Some(Span::ZERO) };
    let connection = Connection {
        local: "10.0.0.1:5000".parse().unwrap(),
        remote: "10.0.0.2:5201".parse().unwrap(),
        state: ConnectionState::Established,
        cookie: 1,
        holders: vec![Holder { pid: 7, name: "writer".to_owned(), ..Holder::default() }],
        receive_queue: Bytes::ZERO,
        send_queue: Bytes::new(1_500_000),
        receive_limit: Some(Bytes::new(131_072)),
        send_limit: Some(Bytes::new(4_000_000)),
        retransmits: 0,
        probing: false,
        drops: 0,
        beside: false,
        congestion: Some("cubic".to_owned()),
        tcp: Tcp {
            rtt: Some(Span::from_millis(20)),
            min_rtt: Some(Span::from_millis(20)),
            rto: Some(Span::from_millis(220)),
            mss: Some(Bytes::new(1448)),
            path_mtu: Some(Bytes::new(1500)),
            cwnd: Some(700),
            unacked: Some(690),
            window_scaling: Some(true),
            peer_window: Some(Bytes::new(3_000_000)),
            delivery_rate: Some(Rate::from_mbit(400)),
            application_limited: Some(false),
            bytes_acked: Some(Bytes::new(1_000_000 + at * 50_000_000)),
            bytes_received: Some(Bytes::ZERO),
            unsent: Some(Bytes::new(500_000)),
            data_segments_out: Some(1_000 + at as u32 * 34_530),
            segments_out: Some(1_000 + at as u32 * 34_530),
            delivered: Some(1_000 + at as u32 * 34_530),
            retransmitted: Some(0),
            spurious: Some(0),
            reordered: Some(0),
            timeouts: Some(0),
            busy: Some(Span::from_secs(at)),
            window_limited: Some(Span::ZERO),
            buffer_limited: Some(Span::ZERO),
            ..Tcp::default()
        },
    };
    let eth0 = InterfaceCounters {
        sent: Bytes::new(at * 52_300_000),
        sent_packets: at * 34_530,
        received: Bytes::new(at * 1_000_000),
        received_packets: at * 17_000,
        carrier_changes: Some(1),
        ..InterfaceCounters::default()
    };
    Sample {
        at: Span::from_secs(at),
        cores: [(0, times(at, [5, 20, 5, 0])), (1, times(at, [5, 20, 5, 0]))].into(),
        softnet: [(0, Softnet::default()), (1, Softnet::default())].into(),
        counters: [("TcpRetransSegs".to_owned(), 0)].into(),
        interfaces: [("eth0".to_owned(), eth0)].into(),
        pressure: ["cpu", "io", "memory"].map(|name| (name.to_owned(), stall)).into(),
        connections: vec![connection],
        tasks: vec![task(at, 7, "writer", 30)],
        ..Sample::default()
    }
}

fn times(at: u64, [user, system, softirq, steal]: [u64; 4]) -> CoreTimes {
    let percent = |percent: u64| Span::from_millis(10 * percent * at);
    CoreTimes {
        user: percent(user),
        system: percent(system),
        softirq: percent(softirq),
        steal: percent(steal),
        idle: percent(100 - user - system - softirq - steal),
        ..CoreTimes::default()
    }
}

fn task(at: u64, pid: u32, name: &str, percent: u64) -> Task {
    Task {
        pid,
        tid: pid,
        name: name.to_owned(),
        state: "R".to_owned(),
        ran: Some(Span::from_millis(10 * percent * at)),
        waited: Some(Span::ZERO),
        core: Some(0),
        ..Task::default()
    }
}

const SAMPLES: u64 = 4;
