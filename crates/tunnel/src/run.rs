//! An end as a process: it starts, says where it is, runs until it is told to end, and lets what it carries
//! come to its end.

use crate::access::SystemResolver;
use crate::client::{Client, ClientError};
use crate::config::{ClientConfig, Forward, ServerConfig, Settings};
use crate::identity::{Identity, IdentityError};
use crate::server::{Server, ServerError};
use crate::status::{
    self, Directory, Facts, MetricsListener, Status, StatusError, StatusListener, Tell,
};
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Status(#[from] StatusError),
    #[error("metrics cannot be served on {0}: {1}")]
    Metrics(crate::config::MetricsAddress, #[source] io::Error),
    #[error("the process cannot be prepared: {0}")]
    Process(#[source] io::Error),
}

/// Until SIGINT or SIGTERM; a second one ends it at once. `say` is given lines for people.
pub fn server(config: &ServerConfig, say: impl Fn(String)) -> Result<(), RunError> {
    runtime()?.block_on(async {
        let mut signals = Signals::hear()?;
        let desk = Desk::open("server", &config.settings).await?;
        let server = Arc::new(Server::start(config.parts(Arc::new(SystemResolver))?)?);
        let (facts, access) = (facts(&config.identity, &config.settings), config.access.clone());
        let weak = Arc::downgrade(&server);
        let _desk = desk.serve(weak, move |server| Status::of_server(server, &access, &facts));
        if let Some(address) = server.local_addr() {
            say(format!("listening on {address}; this server's pin is {}", config.identity.pin()));
        }
        warn_of_expiry(&config.identity);
        signals.first().await;
        say("ending; once more to end at once".to_owned());
        end(server, &mut signals, |server| server.drain(PATIENCE)).await;
        Ok(())
    })
}

/// Likewise.
pub fn client(config: &ClientConfig, say: impl Fn(String)) -> Result<(), RunError> {
    runtime()?.block_on(async {
        let mut signals = Signals::hear()?;
        let desk = Desk::open("client", &config.settings).await?;
        let client = Arc::new(Client::start(config.parts(Arc::new(SystemResolver))?).await?);
        let facts = facts(&config.identity, &config.settings);
        let weak = Arc::downgrade(&client);
        let _desk = desk.serve(weak, move |client| Status::of_client(client, &facts));
        for Forward { listen_on, target } in &config.forwards {
            say(format!("listening on {listen_on}, which leads to {target} as the server sees it"));
        }
        for Forward { listen_on, target } in &config.reverses {
            say(format!(
                "the server is asked to listen on {listen_on}, which leads here to {target}"
            ));
        }
        warn_of_expiry(&config.identity);
        tokio::select! {
            () = client.connected() => {
                for one in client.links().iter().filter_map(|link| link.server.as_ref()).take(1) {
                    say(format!("connected to {one}"));
                }
                signals.first().await;
            }
            () = signals.first() => {}
        }
        say("ending; once more to end at once".to_owned());
        end(client, &mut signals, |client| client.drain(PATIENCE)).await;
        Ok(())
    })
}

/// How this user's ends fare, or the one behind that socket. Sockets that nobody is behind are removed.
pub fn statuses(socket: Option<&Path>) -> Result<Vec<Status>, RunError> {
    let sockets =
        socket.map_or_else(|| Directory::of_user().sockets(), |path| vec![path.to_owned()]);
    runtime()?.block_on(async {
        let mut all = Vec::new();
        for path in sockets {
            match status::ask(&path).await? {
                Some(status) => all.push(status),
                None if socket.is_none() => {
                    let _ = std::fs::remove_file(&path);
                }
                None => {}
            }
        }
        Ok(all)
    })
}

/// Whoever is looking at the status holds the end for a moment longer.
async fn end<T, F: Future<Output = ()>>(
    mut end: Arc<T>,
    signals: &mut Signals,
    drain: impl FnOnce(T) -> F,
) {
    let whole = loop {
        match Arc::try_unwrap(end) {
            Ok(whole) => break whole,
            Err(shared) => end = shared,
        }
        tokio::task::yield_now().await;
    };
    tokio::select! {
        () = drain(whole) => {}
        () = signals.first() => std::process::exit(1),
    }
}

/// Where others ask how this end fares.
struct Desk {
    socket: Option<StatusListener>,
    metrics: Option<MetricsListener>,
}

impl Desk {
    /// A place of one's own choice must be had; without the usual one a tunnel works all the same.
    async fn open(role: &str, settings: &Settings) -> Result<Self, RunError> {
        let socket = match &settings.status_socket {
            Some(path) => Some(status::listen(path)?),
            None => {
                let directory = Directory::of_user();
                let listening =
                    directory.prepare().and_then(|()| status::listen(&directory.socket(role)));
                listening
                    .inspect_err(|error| tracing::warn!("no `weir tunnel status`: {error}"))
                    .ok()
            }
        };
        let metrics = match &settings.metrics_on {
            None => None,
            Some(address) => {
                let bound = MetricsListener::bind(address).await;
                Some(bound.map_err(|error| RunError::Metrics(address.clone(), error))?)
            }
        };
        Ok(Self { socket, metrics })
    }

    /// As long as what it returns is kept.
    fn serve<T: Send + Sync + 'static>(
        self,
        end: Weak<T>,
        look: impl Fn(&T) -> Status + Send + Sync + 'static,
    ) -> JoinSet<()> {
        let tell: Tell = Arc::new(move || end.upgrade().map(|end| look(&end)));
        let mut tasks = JoinSet::new();
        if let Some(socket) = self.socket {
            tasks.spawn(socket.serve(Arc::clone(&tell)));
        }
        if let Some(metrics) = self.metrics {
            tasks.spawn(status::serve_metrics(metrics, tell));
        }
        tasks
    }
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn hear() -> Result<Self, RunError> {
        let hear = |kind| signal(kind).map_err(RunError::Process);
        Ok(Self {
            interrupt: hear(SignalKind::interrupt())?,
            terminate: hear(SignalKind::terminate())?,
        })
    }

    async fn first(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

pub(crate) fn runtime() -> Result<Runtime, RunError> {
    Builder::new_current_thread().enable_all().build().map_err(RunError::Process)
}

fn facts(identity: &Identity, settings: &Settings) -> Facts {
    Facts {
        version: env!("CARGO_PKG_VERSION"),
        congestion: settings.congestion.to_string(),
        certificate: identity.certificate().clone(),
        memory: settings.memory,
        began: Instant::now(),
    }
}

fn warn_of_expiry(identity: &Identity) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    if identity.certificate().valid_until().saturating_sub(now) < SOON {
        let until = identity.certificate().valid_until_date();
        tracing::warn!("this end's certificate expires on {until}: weir tunnel keys --force");
    }
}

/// What is carried may go on for so long after the first signal.
const PATIENCE: Duration = Duration::from_secs(3);
const SOON: Duration = Duration::from_secs(30 * 24 * 3600);
