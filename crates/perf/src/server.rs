//! The server: serves many clients at once, each within its limits.
//!
//! The door thread accepts every connection and datagram that arrives at the port, finds out which
//! session it belongs to, and never blocks on a single client. Each client has its own thread, and
//! so has each of its streams. A client that misbehaves or stalls does not affect the others.

mod admission;
mod datagrams;
mod door;
mod guests;
mod listen;
mod offer;
mod refusal;
mod streams;
mod threshold;
mod transcript;
mod visit;

use crate::PerfError;
use crate::accounts::Gate;
use crate::event::{Audience, Listening, Stop};
use crate::options::ServerOptions;
use door::Door;
use guests::Guests;
use listen::Sockets;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Instant;
use threshold::Named;
use visit::{House, Visit};

/// A server that holds its port but does not serve yet.
#[derive(Debug)]
pub struct Server {
    options: ServerOptions,
    sockets: Sockets,
    output: OutputForm,
}

/// Form in which clients get this server's output (`--get-server-output`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputForm {
    #[default]
    Text,
    Json,
}

/// A client that connected, before anything is known of its test.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    /// 1 for the first client.
    pub number: u64,
    pub address: SocketAddr,
}

/// Counts of a server's run, from its start to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Tests that ran to completion.
    pub completed: u64,
    pub failed: u64,
    /// Clients turned away because the server was at its limits.
    pub busy: u64,
    /// Connections that sent no valid cookie, or that no account admits.
    pub dismissed: u64,
}

impl Server {
    /// Binds the port for TCP and UDP.
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

    /// Event for the audience of the server itself, before [`Self::run`].
    pub fn listening(&self) -> Listening {
        Listening { address: self.address() }
    }

    /// Serves until `stop` is called, until one test has run (`one_off`), or until no client has
    /// come for `idle_timeout`. Each client has its own audience, which is made when the client
    /// arrives and called from the client's thread.
    pub fn run<A>(&self, stop: &Stop, audience_for: A) -> Result<Summary, PerfError>
    where
        A: Fn(&Client) -> Box<dyn Audience + Send> + Sync,
    {
        let guests = Arc::new(Guests::default());
        let gate = self.options.accounts.as_ref().map(Gate::new);
        let house = House {
            options: &self.options,
            gate: gate.as_ref(),
            output: self.output,
            stop,
            port: self.address().port(),
        };
        // With `one_off`, the end of the server also ends the sessions of all other clients.
        thread::scope(|scope| {
            let mut reception = Reception {
                house,
                scope,
                guests: Arc::clone(&guests),
                audience_for: &audience_for,
                visits: Vec::new(),
                ended: mpsc::channel(),
                summary: Summary::default(),
            };
            let served = reception.serve(&self.sockets, self.options.idle_timeout);
            let summary = reception.close();
            served.map(|()| summary)
        })
    }
}

/// Starts a thread for each client that comes through the door.
struct Reception<'scope, 'env, A> {
    house: House<'env>,
    scope: &'scope Scope<'scope, 'env>,
    guests: Arc<Guests>,
    audience_for: &'env A,
    visits: Vec<ScopedJoinHandle<'scope, ()>>,
    ended: (Sender<Outcome>, mpsc::Receiver<Outcome>),
    summary: Summary,
}

/// How a visit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Completed,
    Failed,
    /// The client was told to try again later.
    Busy,
    /// The client never sent its parameters, or was not admitted.
    Nothing,
}

impl<'scope, 'env, A> Reception<'scope, 'env, A>
where
    A: Fn(&Client) -> Box<dyn Audience + Send> + Sync,
{
    fn serve(
        &mut self,
        sockets: &Sockets,
        idle_timeout: Option<std::time::Duration>,
    ) -> Result<(), PerfError> {
        let mut door = Door::new(sockets, self.house.options, Arc::clone(&self.guests));
        let mut idle_since = Instant::now();
        while !self.house.stop.is_called() {
            for named in door.look(&mut self.summary)? {
                self.receive(named);
            }
            if self.reap() && self.house.options.one_off {
                return Ok(());
            }
            if !self.visits.is_empty() {
                idle_since = Instant::now();
            }
            if idle_timeout.is_some_and(|timeout| idle_since.elapsed() >= timeout) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn receive(&mut self, named: Named) {
        let Named { cookie, socket, from, .. } = named;
        if let Err(full) = self.guests.room(from, self.house.most_tests()) {
            self.turn_away(socket, from, full.reason());
            return;
        }
        let Ok(local) = socket.local_addr() else { return };
        let most_silent = self.house.options.limits.unnamed;
        let seat = self.guests.seat(cookie, &socket, (from, local), most_silent);
        let client = Client { number: seat.number(), address: plain(from) };
        let (house, audience_for, ended) = (self.house, self.audience_for, self.ended.0.clone());
        // A second handle, in case the thread cannot be started.
        let spare = socket.try_clone();
        let visit = thread::Builder::new().name(format!("client {}", client.number)).spawn_scoped(
            self.scope,
            move || {
                let audience = audience_for(&client);
                let outcome = Visit::new(house, seat, cookie, client).receive(socket, audience);
                // The receiver is gone when the server ends.
                let _ = ended.send(outcome);
            },
        );
        match visit {
            Ok(visit) => self.visits.push(visit),
            Err(error) => {
                if let Ok(socket) = spare {
                    self.turn_away(socket, from, &format!("there is no thread for it: {error}"));
                }
            }
        }
    }

    fn turn_away(&mut self, socket: std::net::TcpStream, from: SocketAddr, why: &str) {
        tracing::warn!("{} was told to try again later: {why}", plain(from));
        self.summary.busy += 1;
        door::deny(socket);
    }

    /// Counts the visits that ended; true if one was a test.
    fn reap(&mut self) -> bool {
        self.visits.retain(|visit| !visit.is_finished());
        let mut tests = false;
        while let Ok(outcome) = self.ended.1.try_recv() {
            self.summary.note(outcome);
            tests |= matches!(outcome, Outcome::Completed | Outcome::Failed);
        }
        tests
    }

    /// Waits for the remaining visits, which the call to stop has told to end.
    fn close(mut self) -> Summary {
        for visit in self.visits.drain(..) {
            // A visit that panicked has ended like any other.
            let _ = visit.join();
        }
        self.reap();
        self.summary
    }
}

impl Summary {
    fn note(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Completed => self.completed += 1,
            Outcome::Failed => self.failed += 1,
            Outcome::Busy => self.busy += 1,
            Outcome::Nothing => self.dismissed += 1,
        }
    }
}

/// Shows a mapped IPv4 address of a dual-stack socket as plain IPv4.
fn plain(mut address: SocketAddr) -> SocketAddr {
    address.set_ip(address.ip().to_canonical());
    address
}
