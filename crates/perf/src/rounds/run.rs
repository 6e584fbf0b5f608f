use super::options::RoundsOptions;
use super::outcome::{Run, estimate};
use super::session::Session;
use super::{Latencies, RoundsOutcome, Size};
use crate::PerfError;
use crate::control::State;
use crate::event::Stop;
use stats::MeanEstimate;
use std::net::SocketAddr;
use units::foreign;

/// Receives the events of a series of measurements, in the thread that runs it.
pub trait Audience {
    fn event(&mut self, event: &Event<'_>);
}

#[derive(Debug)]
pub enum Event<'a> {
    Connected {
        remote: SocketAddr,
        server_version: &'a str,
    },
    Measured(&'a Measured<'a>),
    /// All repeats of a size are done.
    Outcome(&'a RoundsOutcome),
}

#[derive(Debug)]
pub struct Measured<'a> {
    pub size: Size,
    pub run: &'a Run,
    /// Estimate of the rate over the repeats so far.
    pub estimate: &'a MeanEstimate,
    /// Number of the repeat, from 1.
    pub repeat: u32,
    pub most_repeats: u32,
}

/// Measures every size until its mean reaches the required confidence or the repeats are used up.
/// The outcomes show which sizes did not reach the confidence.
pub fn run(
    options: &RoundsOptions,
    stop: &Stop,
    audience: &mut dyn Audience,
) -> Result<Vec<RoundsOutcome>, PerfError> {
    options.check()?;
    let (mut session, offer) = Session::open(options, stop)?;
    let version = foreign(&offer.version).to_string();
    audience.event(&Event::Connected { remote: session.remote(), server_version: &version });
    let outcomes = options.sizes.iter().map(|size| {
        let outcome = measure(options, *size, &mut session, audience)?;
        audience.event(&Event::Outcome(&outcome));
        Ok(outcome)
    });
    let outcomes = outcomes.collect::<Result<Vec<_>, PerfError>>();
    session.leave(if outcomes.is_ok() { State::Done } else { State::ClientTerminate });
    outcomes
}

fn measure(
    options: &RoundsOptions,
    size: Size,
    session: &mut Session<'_>,
    audience: &mut dyn Audience,
) -> Result<RoundsOutcome, PerfError> {
    let RoundsOptions { kind, confidence, repeats, connections, depth, .. } = *options;
    let (mut runs, mut latencies) = (Vec::new(), Latencies::default());
    for repeat in 1..=repeats.most {
        runs.push(session.measure(&size, &mut latencies)?);
        let estimate = estimate(&runs, confidence);
        let (Some(run), Some(estimate)) = (runs.last(), estimate) else { break };
        let most_repeats = repeats.most;
        let measured = Measured { size, run, estimate: &estimate, repeat, most_repeats };
        audience.event(&Event::Measured(&measured));
        let met = confidence.is_some_and(|asked| asked.is_met_by(&estimate));
        if repeat >= repeats.least && (met || confidence.is_none()) {
            break;
        }
    }
    RoundsOutcome::of((kind, size), (connections, depth), (runs, &latencies), confidence)
        .ok_or_else(|| session.foreign("figures that are not numbers".to_owned()))
}
