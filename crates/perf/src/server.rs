//! The server: serves many clients at once, each within its limits.
//!
//! The listener thread accepts every connection and datagram that arrives at the port, and finds
//! the session of the connection or datagram. The listener thread never blocks on a single client.
//! Each client has a thread, and each stream of a client has a thread. A client that misbehaves or
//! stalls does not affect other clients.

mod admission;
mod client_session;
mod confinement;
mod datagrams;
mod limits;
mod listener;
mod offer;
mod pending;
mod refusal;
mod sessions;
mod sockets;
mod streams;
mod transcript;

use crate::PerfError;
use crate::accounts::Authenticator;
use crate::event::{Audience, Listening, Stop};
use crate::options::ServerOptions;
use crate::session::plain;
use client_session::{ClientSession, ServerContext};
pub use confinement::ServeAs;
use listener::Listener;
use pending::Identified;
use sessions::Sessions;
use sockets::Sockets;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Instant;

/// A server that holds its port but does not serve yet.
#[derive(Debug)]
pub struct Server {
    options: ServerOptions,
    sockets: Sockets,
    output: OutputForm,
}

/// Format in which clients get this server's output (`--get-server-output`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputForm {
    #[default]
    Text,
    Json,
}

/// A client that has connected and has not sent its parameters.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    pub number: u64,
    pub address: SocketAddr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Tests that ran to completion.
    pub completed: u64,
    pub failed: u64,
    /// Clients turned away because the server was at its limits.
    pub busy: u64,
    /// Connections without a valid cookie, and clients without a valid account.
    pub dismissed: u64,
}

impl Server {
    pub fn bind(options: &ServerOptions) -> Result<Self, PerfError> {
        crate::stream::may_run_on(options.affinity)?;
        let sockets = Sockets::open(options)?;
        Ok(Self { options: options.clone(), sockets, output: OutputForm::default() })
    }

    #[must_use]
    pub fn output_form(mut self, output: OutputForm) -> Self {
        self.output = output;
        self
    }

    pub fn address(&self) -> SocketAddr {
        self.sockets.address
    }

    /// Returns the event to report to the server's own audience before [`Self::run`].
    pub fn listening(&self) -> Listening {
        Listening { address: self.address() }
    }

    /// Serves until `stop` is called, until a test has run (`one_off`), or until no client has
    /// connected for `idle_timeout`. For each client, `audience_for` makes an audience, which the
    /// client's thread calls.
    pub fn run<A>(&self, stop: &Stop, audience_for: A) -> Result<Summary, PerfError>
    where
        A: Fn(&Client) -> Box<dyn Audience + Send> + Sync,
    {
        let sessions = Arc::new(Sessions::default());
        let authenticator = self.options.accounts.as_ref().map(Authenticator::new);
        let stop = stop.inner();
        let context = ServerContext {
            options: &self.options,
            authenticator: authenticator.as_ref(),
            output: self.output,
            stop: &stop,
            port: self.address().port(),
        };
        // With `one_off`, the end of the server also ends the sessions of all other clients.
        thread::scope(|scope| {
            let mut threads = SessionThreads {
                context,
                scope,
                sessions: Arc::clone(&sessions),
                audience_for: &audience_for,
                handles: Vec::new(),
                ended: mpsc::channel(),
                summary: Summary::default(),
            };
            let served = threads.serve(&self.sockets, self.options.idle_timeout);
            stop.call();
            let summary = threads.close();
            served.map(|()| summary)
        })
    }
}

/// Starts a thread for each client that the listener accepts.
struct SessionThreads<'scope, 'env, A> {
    context: ServerContext<'env>,
    scope: &'scope Scope<'scope, 'env>,
    sessions: Arc<Sessions>,
    audience_for: &'env A,
    handles: Vec<ScopedJoinHandle<'scope, ()>>,
    ended: (Sender<Outcome>, mpsc::Receiver<Outcome>),
    summary: Summary,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Completed,
    /// The test failed after its traffic had begun.
    Failed,
    /// The client sent its parameters, and no traffic began.
    NotBegun,
    /// The client was told to try again later.
    Busy,
    /// The client never sent its parameters, or was not admitted.
    Nothing,
}

impl<'scope, 'env, A> SessionThreads<'scope, 'env, A>
where
    A: Fn(&Client) -> Box<dyn Audience + Send> + Sync,
{
    fn serve(
        &mut self,
        sockets: &Sockets,
        idle_timeout: Option<std::time::Duration>,
    ) -> Result<(), PerfError> {
        let mut listener = Listener::new(sockets, self.context.options, Arc::clone(&self.sessions));
        let mut idle_since = Instant::now();
        while !self.context.stop.is_called() {
            for identified in listener.poll(&mut self.summary)? {
                self.start_session(identified);
            }
            if self.reap() && self.context.options.one_off {
                return Ok(());
            }
            if !self.handles.is_empty() {
                idle_since = Instant::now();
            }
            if idle_timeout.is_some_and(|timeout| idle_since.elapsed() >= timeout) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn start_session(&mut self, identified: Identified) {
        let Identified { cookie, socket, from, .. } = identified;
        if let Err(full) = self.sessions.room(from, self.context.test_limits()) {
            self.refuse(socket, from, full.reason());
            return;
        }
        let Ok(local) = socket.local_addr() else { return };
        let silent = (self.context.options.limits.pending, self.context.stop);
        let reservation = self.sessions.reserve(cookie, &socket, (from, local), silent);
        let client = Client { number: reservation.number(), address: plain(from) };
        let (context, audience_for, ended) =
            (self.context, self.audience_for, self.ended.0.clone());
        // Keep a second handle, to refuse the client if its thread cannot be started.
        let spare = socket.try_clone();
        let handle = thread::Builder::new().name(format!("client {}", client.number)).spawn_scoped(
            self.scope,
            move || {
                let audience = audience_for(&client);
                let outcome =
                    ClientSession::new(context, reservation, cookie, client).run(socket, audience);
                // The receiver is gone when the server ends.
                let _ = ended.send(outcome);
            },
        );
        match handle {
            Ok(handle) => self.handles.push(handle),
            Err(error) => {
                if let Ok(socket) = spare {
                    self.refuse(socket, from, &format!("there is no thread for it: {error}"));
                }
            }
        }
    }

    fn refuse(&mut self, socket: std::net::TcpStream, from: SocketAddr, why: &str) {
        tracing::warn!("{} was told to try again later: {why}", plain(from));
        self.summary.busy += 1;
        listener::deny(socket);
    }

    /// Counts the sessions that have ended; returns true if at least one was a test. A session is
    /// no test if its client leaves after its parameters, or if the parameters are refused.
    fn reap(&mut self) -> bool {
        self.handles.retain(|handle| !handle.is_finished());
        let mut tests = false;
        while let Ok(outcome) = self.ended.1.try_recv() {
            self.summary.note(outcome);
            tests |= matches!(outcome, Outcome::Completed | Outcome::Failed);
        }
        tests
    }

    /// Waits for the remaining sessions, which the caller has called to stop.
    fn close(mut self) -> Summary {
        for handle in self.handles.drain(..) {
            // A session that panicked has ended like any other.
            let _ = handle.join();
        }
        self.reap();
        self.summary
    }
}

impl Summary {
    fn note(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Completed => self.completed += 1,
            Outcome::Failed | Outcome::NotBegun => self.failed += 1,
            Outcome::Busy => self.busy += 1,
            Outcome::Nothing => self.dismissed += 1,
        }
    }
}
