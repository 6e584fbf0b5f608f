//! Measures HTTP downloads from a real web server to clients behind several links at once.
//!
//! Every path has a client, which fetches the file, reads the server kernel's statistics of the
//! connection, closes the connection, and starts again until the time is over. Each client fetches
//! the file at least once. The clients do not affect each other, because each client has a link of
//! its own.

use super::account;
use super::client::{Attempt, Client};
use super::ideal::Path;
use super::nginx::{self, Nginx};
use super::settings::DownloadSettings;
use crate::bench::machine::{MachineStep, Measured, Roles, SeenLinks, Testbed, Watch};
use crate::model::file::{LinkSettings, SystemSpec};
use crate::model::{Failure, Measurement};
use link::{Capacity, LinkConfig};
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;
use units::{Span, Time};

/// A client's link, and the times at which a download was under way on the link.
#[derive(Debug)]
pub(super) struct WayUsed {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) path: Path,
    pub(super) windows: Vec<Range<Time>>,
}

pub(super) fn measure(
    settings: &DownloadSettings,
    step: &MachineStep<'_>,
    testbed: &Testbed,
) -> Result<Measured, Failure> {
    let server_host = testbed.namespace(&settings.server)?;
    let mut nginx = Nginx::start(step, &server_host, settings.size)?;
    if let Some(segments) = step.system.first_window() {
        for way in &settings.ways {
            testbed.set_first_window(&settings.server, &way.to, segments)?;
        }
    }
    let congestion = step.system.congestion.as_ref().map(|name| name.get_ref().as_str());
    if let Some(name) = congestion {
        nginx.choose(&server_host, name)?;
    }
    let mut clients = Vec::with_capacity(settings.ways.len());
    let mut paths = Vec::with_capacity(settings.ways.len());
    for way in &settings.ways {
        let path = path_of(&settings.links, &settings.server, &way.to)?;
        let expected = path.expected(settings.size, congestion);
        clients.push(Client {
            host: testbed.namespace(&way.to)?,
            server_host: &server_host,
            server: SocketAddr::new(testbed.address(&settings.server, &way.to)?, nginx::PORT),
            expected: nginx.expected(),
            congestion,
            cpus: &step.cpus.to,
            patience: (expected * PATIENCE).as_duration() + LEAST_PATIENCE,
            cancel: step.cancel,
        });
        paths.push(path);
    }
    if step.system.is_warm() {
        let multiple = step.system.warmed_at().map_err(Failure::Workload)?;
        let changes = step.system.warmed_at.is_some();
        if changes {
            change_rates(settings, testbed, step.seed, multiple)?;
        }
        for (attempts, way) in run(&clients, Span::ZERO)?.iter().zip(&settings.ways) {
            if let Some(Attempt::Failed { reason, .. }) = attempts.first() {
                let text = format!("path {} could not be warmed up: {reason}", way.name);
                return Err(Failure::Workload(text));
            }
        }
        if changes {
            change_rates(settings, testbed, step.seed, 1.0)?;
        }
    }
    let emulator_tid = testbed.emulator_tid();
    let roles = Roles { client: Vec::new(), server: vec![nginx.pid()], emulator_tid };
    let before = Watch::read(&roles)?;
    let attempts = run(&clients, step.duration)?;
    let after = Watch::read(&roles)?;
    nginx.still_there()?;
    let window = before.taken()..after.taken();
    let mut result = Measurement::default();
    account::account(settings, &paths, &attempts, &mut result);
    let bytes: f64 = attempts.iter().flatten().map(|attempt| attempt.bytes() as f64).sum();
    let elapsed = window.end.since(window.start).secs_f64();
    after.account(&before, step.cpus, Some(bytes * 8e-6 / elapsed.max(1e-9)), &mut result);
    result.congestion_control = congestion.map(str::to_owned);
    let used = settings.ways.iter().zip(paths).zip(&attempts).map(|((way, path), attempts)| {
        let windows = attempts.iter().map(Attempt::window).collect();
        WayUsed { from: settings.server.clone(), to: way.to.clone(), path, windows }
    });
    let ways: Vec<WayUsed> = used.collect();
    let queues = move |seen: &SeenLinks<'_>, result: &mut Measurement| {
        account::account_queues(&ways, seen.started, seen.statistics, result);
    };
    Ok(Measured { result, queues: Box::new(queues) })
}

/// Sets the rate of the link towards each client to a multiple of the configured rate.
fn change_rates(
    settings: &DownloadSettings,
    testbed: &Testbed,
    seed: u64,
    multiple: f64,
) -> Result<(), Failure> {
    for way in &settings.ways {
        let path = path_of(&settings.links, &settings.server, &way.to)?;
        let link = settings.links.iter().find(|link| link.joins(&settings.server, &way.to));
        let Some(config) = link.and_then(|link| link.way_from(&settings.server)) else { continue };
        let rate = Capacity::Fixed(super::scaled(path.rate, multiple));
        let config = LinkConfig { rate, ..config.clone() };
        testbed.change(&settings.server, &way.to, config, seed)?;
    }
    Ok(())
}

/// Estimates the duration of a cell on its slowest path.
pub(super) fn lasting(settings: &DownloadSettings, system: &SystemSpec, duration: Span) -> Span {
    let DownloadSettings { server, ways, size, links } = settings;
    let congestion = system.congestion.as_ref().map(|name| name.get_ref().as_str());
    let each = ways.iter().filter_map(|way| {
        let once = path_of(links, server, &way.to).ok()?.expected(*size, congestion);
        // A download that has begun in time is completed after the time is over.
        let measured = if once > duration { once } else { duration + once / 2 };
        Some(if system.is_warm() { measured + once } else { measured })
    });
    each.max().unwrap_or(duration)
}

fn path_of(links: &[LinkSettings], from: &str, to: &str) -> Result<Path, Failure> {
    let link = links.iter().find(|link| link.joins(from, to));
    let ways = link.and_then(|link| Some((link.way_from(from)?, link.way_from(to)?)));
    ways.and_then(|(there, back)| Path::of(there, back))
        .ok_or_else(|| Failure::Workload(format!("no emulated link with a rate leads to {to}")))
}

/// Runs all clients at once. Each client continues until `duration` is over.
fn run(clients: &[Client<'_>], duration: Span) -> Result<Vec<Vec<Attempt>>, Failure> {
    std::thread::scope(|scope| {
        let running: Vec<_> =
            clients.iter().map(|client| scope.spawn(|| client.run(duration))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        running.into_iter().map(join).collect()
    })
}

/// Timeout as a multiple of a download's expected time. A path that loses every retransmission
/// again may take as long without being broken.
const PATIENCE: u64 = 6;
const LEAST_PATIENCE: Duration = Duration::from_secs(20);
