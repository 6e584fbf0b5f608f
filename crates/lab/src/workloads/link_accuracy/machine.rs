//! Checks the emulated link: whether it has its configured rate, delay and loss.
//!
//! The check works from outside, by numbered datagrams between two namespaces and the kernel's
//! timestamps. First comes a stream slightly faster than the link. The stream is sized to fit the
//! queue, so that the link is never idle and only the medium loses packets. The spacing of the
//! arriving datagrams is the rate, the gaps in their numbers are the loss. On a link that is never
//! idle the first departure, the rate and the delay say when each datagram has to arrive. The
//! actual arrival differs by the error of the delay under load. Then come single probes over the
//! idle link. The time of a probe from departure to arrival is the delay.

use super::datagrams::{self, HEADERS, Receipt};
use crate::bench::machine::{MachineStep, Measured, Roles, Testbed, Watch};
use crate::model::{Failure, Measurement};
use link::{Capacity, Limit, LinkConfig, Loss, QueueConfig};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use units::{Bytes, Rate, Share, Span};

pub(super) fn measure(
    link: &LinkConfig,
    interrupts: Span,
    step: &MachineStep<'_>,
    testbed: &Testbed,
) -> Result<Measured, Failure> {
    let Capacity::Fixed(rate) = link.rate else {
        return Err(Failure::Workload("only a link with a fixed rate can be judged".to_owned()));
    };
    let Loss::Bernoulli(loss) = link.loss else {
        return Err(Failure::Workload("only independent loss can be judged".to_owned()));
    };
    let roles = Roles { emulator_tid: testbed.emulator_tid(), ..Roles::default() };
    let before = Watch::read(&roles)?;
    let mut result = Measurement::default();
    judge_stream(step, testbed, rate, loss, link, interrupts, &mut result)?;
    judge_delay(step, testbed, rate, link.delay, &mut result)?;
    let after = Watch::read(&roles)?;
    after.account(&before, step.cpus, None, &mut result);
    Ok(Measured::between_ends(step, before.taken()..after.taken(), result))
}

fn judge_stream(
    step: &MachineStep<'_>,
    testbed: &Testbed,
    rate: Rate,
    loss: Share,
    link: &LinkConfig,
    interrupts: Span,
    result: &mut Measurement,
) -> Result<(), Failure> {
    let frame = PAYLOAD as u64 + HEADERS;
    let faster = Rate::from_bits_per_second((rate.bits_per_second() as f64 * FASTER) as u64);
    let wanted = rate.bytes_in(step.duration).count() / frame;
    // The queue must hold the frames by which the stream is ahead of the link. Otherwise not only
    // the medium but also the queue would drop packets.
    let ahead = rate.bytes_in(AHEAD).count() / frame;
    let room = queue_room(&link.queue, frame).saturating_sub(ahead + BURST_FRAMES);
    let count = wanted.min((room as f64 / (FASTER - 1.0) * FASTER) as u64);
    if count < 200 {
        return Err(Failure::Workload(
            "the link's queue is too small to judge its rate: give it a few megabytes".to_owned(),
        ));
    }
    let silence = link.delay + Span::from_millis(100);
    let mut begun = None;
    let receipts = exchange(step, testbed, silence, |socket, stop| {
        begun = datagrams::send_paced(socket, count, ahead, PAYLOAD, faster, stop)?;
        Ok(())
    })?;
    let (Some(first), Some(last)) = (receipts.first(), receipts.last()) else {
        return Err(Failure::Workload("no datagram arrived".to_owned()));
    };
    let elapsed = last.at.saturating_sub(first.at) as f64 / 1e9;
    let slots = last.number.saturating_sub(first.number);
    let carried = (slots * frame * 8) as f64 / elapsed;
    let error = (carried / rate.bits_per_second() as f64 - 1.0).abs() * 100.0;
    result.record("rate_mbit_s", Some(carried / 1e6));
    result.record("rate_error_percent", Some(error));
    let lost = count - distinct(&receipts);
    let check = stats::binomial::loss_agrees(lost, count, loss)
        .map_err(|e| Failure::Workload(e.to_string()))?;
    result.record("loss_percent", Some(check.measured.percent()));
    result.record("loss_in_interval", Some(if check.inside { 1.0 } else { 0.0 }));
    if let Some(begun) = begun {
        let each = (frame * 8) as f64 / rate.bits_per_second() as f64 * 1e9;
        let errors = errors_under_load(&receipts, begun, each, link.delay, interrupts);
        result.record_quantiles("loaded_delay_error_us", &errors, &["p50", "p99"]);
    }
    result.record("pps", Some(receipts.len() as f64 / elapsed));
    Ok(())
}

/// Returns the number of microseconds by which each datagram of a stream that keeps the link busy
/// arrived too early or too late. `begun`: the first datagram's departure; `each`: the time of a
/// datagram on the link, in nanoseconds. The wait for an interrupt is no error.
fn errors_under_load(
    receipts: &[Receipt],
    begun: u64,
    each: f64,
    delay: Span,
    interrupts: Span,
) -> Vec<f64> {
    let error = |receipt: &Receipt| {
        let taken = receipt.at.saturating_sub(begun) as f64;
        let ordered = (receipt.number + 1) as f64 * each + delay.nanos() as f64;
        let late = taken - ordered;
        let beyond = (late - interrupts.nanos() as f64).max(0.0);
        late.min(0.0).abs().max(beyond) / 1000.0
    };
    receipts.iter().map(error).collect()
}

fn judge_delay(
    step: &MachineStep<'_>,
    testbed: &Testbed,
    rate: Rate,
    delay: Span,
    result: &mut Measurement,
) -> Result<(), Failure> {
    let departures = std::sync::Mutex::new(Vec::new());
    let silence = delay + Span::from_millis(100);
    let receipts = exchange(step, testbed, silence, |socket, stop| {
        datagrams::stamp_departures(socket, true)?;
        let mut left = Vec::with_capacity(PROBES as usize);
        for number in 0..PROBES {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            left.push(datagrams::send_stamped(socket, number, PROBE_PAYLOAD)?);
            std::thread::sleep(PROBE_GAP.as_duration());
        }
        *departures.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = left;
        Ok(())
    })?;
    let departures = departures.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let on_the_link = rate.time_for(Bytes::new(PROBE_PAYLOAD as u64 + HEADERS));
    let ordered = (delay + on_the_link).nanos() as f64;
    let errors: Vec<f64> = receipts
        .iter()
        .filter_map(|receipt| Some((receipt, departures.get(receipt.number as usize)?)))
        .map(|(receipt, left)| (receipt.at as f64 - *left as f64 - ordered).abs() / 1000.0)
        .collect();
    if errors.len() < PROBES as usize / 4 {
        return Err(Failure::Workload(format!(
            "only {} of {PROBES} probes came back",
            errors.len()
        )));
    }
    result.record_quantiles("delay_error_us", &errors, &["p50", "p99"]);
    Ok(())
}

/// Runs `send` in one host while the other host receives the datagrams.
fn exchange(
    step: &MachineStep<'_>,
    testbed: &Testbed,
    silence: Span,
    send: impl FnOnce(&std::net::UdpSocket, &AtomicBool) -> Result<(), Failure> + Send,
) -> Result<Vec<Receipt>, Failure> {
    let (from, to) = (step.ends.from.as_str(), step.ends.to.as_str());
    let near = SocketAddr::new(testbed.address(from, to)?, 0);
    let far = SocketAddr::new(testbed.address(to, from)?, 5_202);
    let (near_host, far_host) = (testbed.namespace(from)?, testbed.namespace(to)?);
    let done = AtomicBool::new(false);
    let cancelled = step.cancel.flag();
    let cpus = &step.cpus.workload;
    let receiver = far_host.run(|| Ok(datagrams::receiver(far)))??;
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            host::pin_to(cpus)?;
            datagrams::receive_all(&receiver, &done, silence)
        });
        let sent = near_host.run(|| {
            host::pin_to(cpus)?;
            Ok(datagrams::sender(near, far).and_then(|socket| send(&socket, &cancelled)))
        });
        done.store(true, Ordering::Release);
        let received = receiving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        if step.cancel.is_cancelled() {
            return Err(Failure::Interrupted);
        }
        sent??;
        lost_at_the_socket(&far_host)?;
        received
    })
}

/// Fails if a socket buffer overflowed, because an overflow would look like loss on the link.
fn lost_at_the_socket(host: &host::Namespace) -> Result<(), Failure> {
    let counters = host.run(|| Ok(probe::snmp::SnmpSnapshot::read()))??;
    match counters.value("UdpRcvbufErrors") {
        Some(0) | None => Ok(()),
        Some(lost) => Err(Failure::Workload(format!(
            "the receiving socket lost {lost} datagrams: raise net.core.rmem_max, or run as root"
        ))),
    }
}

fn distinct(receipts: &[Receipt]) -> u64 {
    let mut numbers: Vec<u64> = receipts.iter().map(|receipt| receipt.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.len() as u64
}

fn queue_room(queue: &QueueConfig, frame: u64) -> u64 {
    match queue.limit() {
        Limit::Bytes(limit) => limit.count() / frame,
        Limit::Packets(limit) => limit,
    }
}

const PAYLOAD: usize = 1458;
const FASTER: f64 = 1.05;
/// Maximum stall of the sender during which the link stays busy.
const AHEAD: Span = Span::from_millis(60);
/// Maximum number of frames that a delayed sender sends in one burst.
const BURST_FRAMES: u64 = 400;
const PROBES: u64 = 400;
const PROBE_PAYLOAD: usize = 200;
const PROBE_GAP: Span = Span::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_a_busy_link_a_datagram_is_due_after_its_predecessors() {
        let (each, delay) = (20_000.0, Span::from_millis(1));
        let receipts = |late: i64| -> Vec<Receipt> {
            let due = |number: u64| 5_000_000 + (number + 1) * 20_000 + 1_000_000;
            // The second datagram was lost after its transmission on the link.
            let at = |number| Receipt { number, at: due(number).saturating_add_signed(late) };
            [0, 2, 3].map(at).to_vec()
        };
        let errors = |late, interrupts| {
            errors_under_load(&receipts(late), 5_000_000, each, delay, interrupts)
        };
        assert_eq!(errors(0, Span::ZERO), [0.0; 3]);
        assert_eq!(errors(30_000, Span::ZERO), [30.0; 3]);
        assert_eq!(errors(-30_000, Span::from_micros(100)), [30.0; 3]);
        assert_eq!(errors(90_000, Span::from_micros(100)), [0.0; 3]);
        assert_eq!(errors(130_000, Span::from_micros(100)), [30.0; 3]);
    }
}
