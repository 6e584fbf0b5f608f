use super::arrived::Arrived;
use super::programs::{Output, Programs};
use super::sample::{self, Sample};
use crate::bench::machine::{MachineStep, Measured, Pair, Roles, Started, Testbed, Watch};
use crate::model::{Failure, Measurement};
use host::Namespace;
use probe::tcp::{Filter, TcpInfo, TcpSocket};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;
use units::{Bytes, Span, Time};

/// A running transfer, with the programs whose exit ends the transfer.
pub(super) struct Transfer<'a> {
    pub(super) step: &'a MachineStep<'a>,
    pub(super) programs: Programs<'a>,
    pub(super) program: Started,
    pub(super) server: Started,
    pub(super) pair: Option<&'a mut Pair>,
    pub(super) target: SocketAddr,
    pub(super) roles: Roles,
    pub(super) seen: Vec<Sample>,
}

impl Transfer<'_> {
    pub(super) fn follow(
        &mut self,
        inside: &Namespace,
        far: &Namespace,
        testbed: &Testbed,
    ) -> Result<Measured, Failure> {
        let step = self.step;
        let begun = self.await_data(inside, testbed)?;
        let opens = begun + self.programs.lasting(step.omit);
        let closes = opens + self.programs.lasting(step.duration);
        if let Some(status) = self.sample_until(opens, inside, testbed)? {
            return Err(self.early_or_late(status));
        }
        let arrived = Arrived::read(far)?;
        let before = Watch::read(&self.roles)?;
        let (after, at_end) = self.watch_until(closes - LAST_LOOK, inside, far, testbed)?;
        self.await_end(closes + AFTERMATH, testbed)?;
        let window = before.taken()..after.taken();
        let mut result = Measurement::default();
        let goodput = at_end.rate_since(&arrived);
        if goodput.is_none() {
            // The client exited successfully, so the server had its sockets open until the client's
            // exit.
            return Err(self.read_too_late());
        }
        self.read_result(goodput, &mut result)?;
        after.account(&before, step.cpus, goodput, &mut result);
        // With a pair of programs, the workload's connection ends at the pair's client program.
        if self.pair.is_none() {
            sample::account(&self.seen, &window, &mut result);
        }
        result.series = sample::series(&self.seen, begun, step);
        // The last sample may have no sockets, because the client has exited.
        let sockets = self.seen.iter().rev().find_map(|sample| sample.sockets.first());
        result.congestion_control = sockets.and_then(|socket| socket.congestion_control.clone());
        Ok(Measured::between_ends(step, window, result))
    }

    /// Waits for the first data on all connections, and checks their algorithm.
    fn await_data(&mut self, inside: &Namespace, testbed: &Testbed) -> Result<Time, Failure> {
        let deadline = probe::clock::now() + BEGUN_WITHIN;
        let streams = self.step.ends.streams as usize;
        let mut is_doubted = false;
        loop {
            let sample = self.sample(inside)?;
            if sample.sockets.len() >= streams {
                // The kernel reads a socket's algorithm before its counters. If the client sets the
                // algorithm in between, the kernel reports the old algorithm beside sent data.
                match self.check_algorithm(&sample) {
                    Err(_) if !is_doubted => {
                        is_doubted = true;
                        continue;
                    }
                    checked => checked?,
                }
                let at = sample.at;
                self.seen.push(sample);
                return Ok(at);
            }
            if let Some(status) = self.program.wait(Duration::from_millis(2))? {
                return Err(self.early_or_late(status));
            }
            self.check_alive(testbed)?;
            if probe::clock::now() > deadline {
                let patience = BEGUN_WITHIN.secs_f64();
                let text = format!("no data went over {} within {patience:.0} s", self.target);
                return Err(Failure::Workload(text));
            }
        }
    }

    fn sample(&self, inside: &Namespace) -> Result<Sample, Failure> {
        let filter = Filter::established().remote(self.target);
        let sockets = inside.run(|| Ok(probe::tcp::sockets(&filter)))??;
        let carries = |socket: &TcpSocket| match self.seen.first() {
            Some(first) => first.sockets.iter().any(|one| one.cookie == socket.cookie),
            None => socket.info.as_ref().is_some_and(carries_data),
        };
        let at = probe::clock::now();
        Ok(Sample { at, sockets: sockets.into_iter().filter(carries).collect() })
    }

    fn check_algorithm(&self, sample: &Sample) -> Result<(), Failure> {
        let Some(wanted) = &self.step.system.congestion else { return Ok(()) };
        for socket in &sample.sockets {
            let has = socket.congestion_control.as_deref().unwrap_or("(unknown)");
            if has != wanted.get_ref() {
                let text =
                    format!("the connection runs {has} though {} was asked for", wanted.get_ref());
                return Err(Failure::Workload(text));
            }
        }
        Ok(())
    }

    /// Reads the machine's clocks at the last moment before `until` at which the client was alive,
    /// because the client's sockets and processes are gone afterwards. The client may end up to a
    /// retransmission timeout before `until`, because the client's clock may start that long before
    /// the lab sees the first data.
    fn watch_until(
        &mut self,
        until: Time,
        inside: &Namespace,
        far: &Namespace,
        testbed: &Testbed,
    ) -> Result<(Watch, Arrived), Failure> {
        let mut latest: Option<(Watch, Arrived)> = None;
        let every = WATCH_EVERY.min(self.step.duration / 4);
        loop {
            let stop = until.min(probe::clock::now() + every);
            let ended = self.sample_until(stop, inside, testbed)?;
            let watch = (Watch::read(&self.roles)?, Arrived::read(far)?);
            let ended = ended.or(self.program.wait(Duration::ZERO)?);
            // A decrease of the received bytes means that the server has closed its sockets,
            // because its own time is over.
            if let Some(before_it) = latest.take_if(|(_, arrived)| watch.1.bytes < arrived.bytes) {
                return Ok(before_it);
            }
            match (ended, latest.take()) {
                (None, _) if stop == until => return Ok(watch),
                (None, _) => latest = Some(watch),
                (Some(status), Some(before_it)) if status.success() => return Ok(before_it),
                (Some(status), _) => return Err(self.early_or_late(status)),
            }
        }
    }

    /// Returns the failure of a client that ended before the lab's reading. If the client was
    /// successful, the lab was late.
    fn early_or_late(&mut self, status: ExitStatus) -> Failure {
        match status.success() {
            true => self.read_too_late(),
            false => self.early_end(status),
        }
    }

    fn read_too_late(&mut self) -> Failure {
        let cause = self.pair.as_mut().and_then(|pair| pair.cause());
        let program = || self.programs.name().to_owned();
        cause.unwrap_or_else(|| Failure::ReadTooLate { program: program() })
    }

    /// Takes samples until `until`. Returns the client's exit status if the client ended earlier.
    fn sample_until(
        &mut self,
        until: Time,
        inside: &Namespace,
        testbed: &Testbed,
    ) -> Result<Option<ExitStatus>, Failure> {
        loop {
            let left = until.since(probe::clock::now());
            if left == Span::ZERO {
                return Ok(None);
            }
            if let Some(status) = self.program.wait(left.min(LOOK_EVERY).as_duration())? {
                return Ok(Some(status));
            }
            self.check_alive(testbed)?;
            let sample = self.sample(inside)?;
            self.check_algorithm(&sample)?;
            self.seen.push(sample);
        }
    }

    fn await_end(&mut self, deadline: Time, testbed: &Testbed) -> Result<(), Failure> {
        loop {
            if let Some(status) = self.program.wait(Duration::from_millis(50))? {
                return if status.success() { Ok(()) } else { Err(self.early_end(status)) };
            }
            self.check_alive(testbed)?;
            if probe::clock::now() > deadline {
                let name = self.programs.name();
                let text = format!("{name} did not end after its time was up");
                return Err(Failure::Workload(text));
            }
        }
    }

    fn check_alive(&mut self, testbed: &Testbed) -> Result<(), Failure> {
        if self.step.cancel.is_cancelled() {
            return Err(Failure::Interrupted);
        }
        if testbed.is_broken() {
            return Err(Failure::Workload("the emulated link died".to_owned()));
        }
        match self.pair.as_mut().and_then(|pair| pair.failure()) {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    /// Returns the reason why the client gave up. The client's own message may only be a
    /// consequence of another program's end, which the client can notice first.
    fn early_end(&mut self, status: ExitStatus) -> Failure {
        if let Some(cause) = self.pair.as_mut().and_then(|pair| pair.cause()) {
            return cause;
        }
        if let Ok(Some(status)) = self.server.wait(CAUSE_WITHIN)
            && status.signal().is_some()
        {
            return self.server.early_end(status);
        }
        let name = format!("{}: ", self.programs.name());
        let said = match self.output() {
            Err(said) if said.starts_with(&name) => said,
            _ => self.program.early_end(status).to_string(),
        };
        Failure::Workload(said + &self.algorithms())
    }

    /// Lists the available algorithms if the kernel refused the requested algorithm.
    fn algorithms(&self) -> String {
        let Some(wanted) = self.step.system.congestion.as_ref().map(|name| name.get_ref()) else {
            return String::new();
        };
        match host::read_sysctl("net.ipv4.tcp_available_congestion_control") {
            Some(known) if !known.split(' ').any(|name| name == wanted) => {
                let known = known.replace(' ', ", ");
                format!(" ({wanted} was asked for; this kernel has {known})")
            }
            _ => String::new(),
        }
    }

    fn output(&self) -> Result<Output, String> {
        let text = self.program.output().map_err(|error| error.to_string())?;
        self.programs.output(&text)
    }

    fn read_result(
        &mut self,
        goodput: Option<f64>,
        result: &mut Measurement,
    ) -> Result<(), Failure> {
        let end = self.output().map_err(Failure::Workload)?.end;
        let (Some(sent), Some(received)) = (&end.sum_sent, &end.sum_received) else {
            let text = format!("{} gave no totals", self.programs.name());
            return Err(Failure::Workload(text));
        };
        if let (Some(wanted), Some(had)) =
            (&self.step.system.congestion, &end.sender_tcp_congestion)
            && wanted.get_ref() != had
        {
            let (name, wanted) = (self.programs.name(), wanted.get_ref());
            let text = format!("{name} ended with {had} though {wanted} was asked for");
            return Err(Failure::Workload(text));
        }
        result.record("goodput_mbit_s", goodput);
        result.record("sender_mbit_s", Some(sent.bits_per_second / 1e6));
        if end.streams.len() > 1 {
            let rates: Vec<f64> = end
                .streams
                .iter()
                .filter_map(|stream| Some(stream.receiver.as_ref()?.bits_per_second))
                .collect();
            result.record("jain", jain(&rates));
        }
        let asked = self.programs.lasting(self.step.duration).secs_f64();
        // A program without a control connection counts from the start and cannot omit the
        // start-up.
        if self.programs.serves_once() && (received.seconds - asked).abs() > 0.2 * asked {
            result.warnings.push(format!(
                "{}'s receiver counted {:.1} s instead of {asked:.1} s",
                self.programs.name(),
                received.seconds
            ));
        }
        if self.programs.serves_once() {
            // The server has completed its one run. Let the server report the run before the lab
            // stops the server.
            let _ = self.server.wait(Duration::from_millis(200));
        }
        Ok(())
    }
}

/// Whether a connection of the client carries the measured data. The client's control connection
/// leads to the same port as the data connections. The control connection carries more than a few
/// hundred bytes only at the end, for the results, and only from the server.
fn carries_data(socket: &TcpInfo) -> bool {
    let has_answered = socket.bytes_received.is_some_and(|received| received > Bytes::ZERO);
    socket.bytes_acked.is_some_and(|sent| sent > CONTROL_AT_MOST) && !has_answered
}

/// Computes Jain's index of fairness (Jain, Chiu, Hawe 1984): 1 for equal shares, 1/n if one flow
/// gets everything.
fn jain(rates: &[f64]) -> Option<f64> {
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    let sum: f64 = rates.iter().sum();
    (squares > 0.0).then(|| sum * sum / (rates.len() as f64 * squares))
}

const WATCH_EVERY: Span = Span::from_millis(250);
const LOOK_EVERY: Span = Span::from_millis(100);
const LAST_LOOK: Span = Span::from_millis(60);
/// Maximum time for the exchange of results over the lossy path. Each loss costs a timeout.
const AFTERMATH: Span = Span::from_secs(30);
const CAUSE_WITHIN: Duration = Duration::from_millis(200);
const BEGUN_WITHIN: Span = Span::from_secs(20);
const CONTROL_AT_MOST: Bytes = Bytes::new(4_096);

#[cfg(test)]
mod tests {
    use super::*;

    /// A lab that samples too late finds only the control connection, which carries the results.
    #[test]
    fn a_control_connection_never_counts_as_a_data_connection() {
        let info = |sent, received| {
            let mut info = TcpInfo::default();
            info.bytes_acked = Some(Bytes::new(sent));
            info.bytes_received = Some(Bytes::new(received));
            info
        };
        let cases = [
            ("control, the cookie sent", info(38, 0), false),
            ("control, the test agreed", info(400, 3), false),
            ("control, the results exchanged", info(60_000, 9_000), false),
            ("data, just opened", info(38, 0), false),
            ("data", info(1_000_000, 0), true),
        ];
        for (name, info, expected) in cases {
            assert_eq!(carries_data(&info), expected, "{name}");
        }
    }

    #[test]
    fn jain_is_1_for_equal_shares_and_less_for_unequal() {
        assert_eq!(jain(&[5.0, 5.0]), Some(1.0));
        assert_eq!(jain(&[10.0, 0.0]), Some(0.5));
        assert_eq!(jain(&[]), None);
        assert_eq!(jain(&[0.0]), None);
    }
}
