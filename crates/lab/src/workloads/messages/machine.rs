//! Measures response times, over a new connection and over an open connection.
//!
//! For the first third of the time, new connections follow one another. Afterwards messages go over
//! open connections, and each message is sent once the previous message has been answered. The two
//! phases do not disturb each other, and a pair of programs in between is warm for both.

use super::settings::MessageSettings;
use crate::bench::machine::{Caller, Listener, MachineStep, Measured, Pair, Roles, Testbed, Watch};
use crate::model::{Failure, Measurement};
use crate::workloads::crowd::inside;
use host::Namespace;
use std::time::{Duration, Instant};

/// Response times, in milliseconds.
#[derive(Debug, Default)]
struct Samples {
    first_byte: Vec<f64>,
    first_message: Vec<f64>,
    message: Vec<f64>,
}

/// The state of a measurement whose server listens and whose programs run.
struct Exchange<'a> {
    step: &'a MachineStep<'a>,
    near: Namespace,
    caller: Caller<'a>,
    settings: MessageSettings,
}

pub(super) fn measure(
    settings: MessageSettings,
    step: &MachineStep<'_>,
    testbed: &Testbed,
) -> Result<Measured, Failure> {
    let near = testbed.namespace(&step.ends.from)?;
    let listener = Listener::open(step, testbed)?;
    std::thread::scope(|scope| {
        let _closing = listener.closing();
        for _ in 0..SERVANTS + settings.streams {
            scope.spawn(|| serve(&listener, step, settings));
        }
        Pair::measure(step, testbed, &listener, |_, caller, roles| {
            Exchange { step, near, caller, settings }.measure(roles)
        })
    })
}

impl Exchange<'_> {
    fn measure(&self, roles: &Roles) -> Result<Measured, Failure> {
        let mut samples = Samples::default();
        inside(self.step, &self.near, || self.warm_up())?;
        let before = Watch::read(roles)?;
        let begun = Instant::now();
        let ends = begun + self.step.duration.as_duration();
        let turned = begun + (self.step.duration / NEW_SHARE).as_duration();
        inside(self.step, &self.near, || self.open(turned, &mut samples))?;
        samples.message = std::thread::scope(|scope| {
            let lanes: Vec<_> = (0..self.settings.streams)
                .map(|_| scope.spawn(|| inside(self.step, &self.near, || self.talk(ends))))
                .collect();
            let mut all = Vec::new();
            for lane in lanes {
                all.extend(lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
            }
            Ok::<_, Failure>(all)
        })?;
        let after = Watch::read(roles)?;
        let mut result = Measurement::default();
        samples.account(&mut result);
        after.account(&before, self.step.cpus, None, &mut result);
        let congestion = self.step.system.congestion.as_ref();
        result.congestion_control = congestion.map(|name| name.get_ref().clone());
        Ok(Measured::between_ends(self.step, before.taken()..after.taken(), result))
    }

    fn warm_up(&self) -> Result<(), Failure> {
        let (message, mut room) = self.message();
        let call = self.caller.warm_up(&message, &mut room)?;
        let until = Instant::now() + self.step.omit.as_duration();
        for done in 0.. {
            self.caller.exchange(&call.socket, &message, &mut room)?;
            if done >= WARMING && Instant::now() >= until {
                break;
            }
        }
        Ok(())
    }

    /// Opens new connections one after the other until `until`, at least one connection.
    fn open(&self, until: Instant, samples: &mut Samples) -> Result<(), Failure> {
        let (message, mut room) = self.message();
        loop {
            let call = self.caller.call(&message, &mut room)?;
            samples.first_byte.push(millis(call.first_byte));
            samples.first_message.push(millis(call.first_message));
            if Instant::now() >= until {
                return Ok(());
            }
        }
    }

    /// Exchanges messages over one connection, then over the next connection. Sends at least one
    /// message.
    fn talk(&self, until: Instant) -> Result<Vec<f64>, Failure> {
        let (message, mut room) = self.message();
        let mut taken = Vec::new();
        loop {
            let call = self.caller.call(&message, &mut room)?;
            for _ in 0..self.settings.count {
                let begun = Instant::now();
                self.caller.exchange(&call.socket, &message, &mut room)?;
                taken.push(millis(begun.elapsed()));
                if Instant::now() >= until {
                    return Ok(taken);
                }
            }
        }
    }

    fn message(&self) -> (Vec<u8>, Vec<u8>) {
        let size = size_of(self.settings);
        (vec![b'a'; size], vec![0; size])
    }
}

impl Samples {
    fn account(&self, result: &mut Measurement) {
        let parts = ["p50", "p90", "p99"];
        result.record_quantiles("first_byte_ms", &self.first_byte, &parts);
        result.record_quantiles("first_message_ms", &self.first_message, &parts);
        result.record_quantiles("message_ms", &self.message, &parts);
        let mean = self.message.iter().sum::<f64>() / self.message.len() as f64;
        result.record("message_ms.mean", Some(mean));
        result.record("connections", Some(self.first_byte.len() as f64));
        result.record("messages", Some(self.message.len() as f64));
    }
}

/// Serves one connection after the other, and answers each message with a message of the same size.
fn serve(
    listener: &Listener,
    step: &MachineStep<'_>,
    settings: MessageSettings,
) -> Result<(), Failure> {
    host::pin_to(&step.cpus.to)?;
    let mut message = vec![0; size_of(settings)];
    while let Some(peer) = listener.next()? {
        let mut has = 0;
        loop {
            match listener.read(&peer, &mut message[has..]) {
                0 => break,
                count => has += count,
            }
            if has == message.len() {
                has = 0;
                if std::io::Write::write_all(&mut &peer, &message).is_err() {
                    break;
                }
            }
        }
    }
    Ok(())
}

fn size_of(settings: MessageSettings) -> usize {
    usize::try_from(settings.size.count()).unwrap_or(usize::MAX)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Number of threads of the server. The last packet of a connection may be lost: some threads may
/// wait for this packet while other threads accept.
const SERVANTS: u32 = 32;
/// Divisor of a step's time that gives the time for new connections: one third.
const NEW_SHARE: u64 = 3;
/// Minimum number of messages that warm up a connection before the measurement.
const WARMING: u32 = 10;
