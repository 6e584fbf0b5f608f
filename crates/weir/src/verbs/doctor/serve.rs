//! `--serve`: metrics for Prometheus, and a line of JSON when a verdict begins or ends.

mod accel;

use super::Doctor;
use crate::exit::Ending;
use crate::output;
use crate::signals::cancel_on_signals;
use anyhow::Context;
use doctor::confinement::socket_remover;
use doctor::observe::Plan;
use doctor::{Diagnosis, Standing, observe};
use host::{HttpResponse, MetricsAddress, MetricsListener, http_response};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use units::Span;

/// The default address. The port follows the metrics ports of the tunnel (9150) and of the switch
/// (9151).
pub(super) const ADDRESS: &str = "127.0.0.1:9152";
pub(super) const SERIES: u16 = 500;

/// The metrics, which one thread writes and another thread serves.
struct Shared {
    standing: Standing,
    begun: Instant,
    last: Instant,
    /// The last time that the observer was known to work: at an observation, or in the pause after
    /// an observation.
    alive: Instant,
}

pub(super) fn run(arguments: &Doctor, address: &MetricsAddress) -> anyhow::Result<Ending> {
    let listener = MetricsListener::bind(address).with_context(|| {
        format!("serving metrics at {address}: name a free address of this host with --serve")
    })?;
    let remover = match address {
        MetricsAddress::Unix(socket) => Some(socket_remover(socket)),
        MetricsAddress::Tcp(_) => None,
    };
    let remover = remover.transpose().context("starting the thread that removes the socket")?;
    super::confine();
    let cancel = cancel_on_signals()?;
    let (end, ending) = std::io::pipe().context("making a pipe")?;
    let begun = Instant::now();
    let standing = Standing::new(usize::from(arguments.series));
    let shared = Mutex::new(Shared { standing, begun, last: begun, alive: begun });
    if let Some(place) = listener.place() {
        output::note(format_args!("weir doctor: metrics at {place}"));
    }
    // An observer that has not set `alive` for `patience` has stalled.
    let patience = PATIENCE + u64::from(arguments.time.unwrap_or(0)) * 2;
    let ended = std::thread::scope(|scope| {
        let server = std::thread::Builder::new().name("metrics".to_owned());
        let mut accel = accel::AccelFigures::default();
        let shared = &shared;
        let respond = move |request: &[u8]| response(request, shared, &mut accel, patience);
        let server = server.spawn_scoped(scope, || {
            // The server's thread owns its end of the pipe, so that a failure of the thread also
            // closes the pipe.
            let end = end;
            listener.serve(end.as_fd(), respond);
        });
        let server = server.context("starting the thread that serves metrics")?;
        // A panic of the observer also drops `ending`, so that the server's thread ends and the
        // scope does not wait for the thread.
        let ending = ending;
        let judge = |diagnosis: Option<&Diagnosis>, plan: &Plan| {
            let drops = plan.drops.as_ref().and_then(|drops| drops.reasons());
            let mut shared = locked(shared);
            if let Some(drops) = drops {
                shared.standing.set_drops(drops);
            }
            shared.last = Instant::now();
            shared.alive = shared.last;
            let at = span(shared.last - begun);
            let own = observe::own_cpu_time();
            let events = match diagnosis {
                Some(diagnosis) => shared.standing.add(diagnosis, at, own),
                None => shared.standing.pass(at, own),
            };
            drop(shared);
            print(events)
        };
        let rests = || locked(shared).alive = Instant::now();
        let observed = arguments.keep_observing(&cancel, judge, rests);
        let stopped = locked(shared).standing.finish();
        let printed = print(stopped);
        drop(ending);
        let _ = server.join();
        observed.and_then(|ending| printed.map(|()| ending))
    });
    if let Some(remover) = remover {
        let _ = remover.call(|| drop(listener));
    }
    ended
}

fn locked(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn span(time: std::time::Duration) -> Span {
    Span::from_millis(time.as_millis() as u64)
}

fn print(events: Vec<doctor::standing::Event>) -> anyhow::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    for mut event in events {
        event.time = now.as_millis() as f64 / 1e3;
        output::print(event.line())?;
    }
    Ok(())
}

fn response(
    request: &[u8],
    shared: &Mutex<Shared>,
    accel: &mut accel::AccelFigures,
    patience: u64,
) -> HttpResponse {
    http_response(request, "/metrics, /healthz", |path| match path {
        "/metrics" => {
            let accel = accel.exposition();
            let shared = locked(shared);
            let (up, since) = (span(shared.begun.elapsed()), span(shared.last.elapsed()));
            Some(HttpResponse::metrics(shared.standing.exposition(up, since) + accel))
        }
        "/healthz" if locked(shared).alive.elapsed().as_secs() > patience => {
            Some(HttpResponse::unavailable("the observer has stalled"))
        }
        "/healthz" => Some(HttpResponse::ok()),
        _ => None,
    })
}

const PATIENCE: u64 = 60;
